package downstream

import (
	"context"
	"encoding/binary"
	"math"
	"reflect"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip" // which downstream.accept_gzip and downstream.gzip are about
	"google.golang.org/grpc/mem"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// wire is a stream below gRPC's SendMsg, which deflates each message for each client, or none: gRPC's compressors get no
// more than bytes, and have to write a copy of what they return. So the relay writes the messages of gzip clients
// itself.
type wire struct{ write, options reflect.Value }

// wireOf returns that of a stream whose client accepts gzip, or nil. It must be called before the stream sends.
func wireOf(ctx context.Context) *wire {
	of := reflect.ValueOf(grpc.ServerTransportStreamFromContext(ctx))
	if !of.IsValid() {
		return nil
	}
	write := of.MethodByName("Write") // its last parameter has a type that only gRPC can name
	if !write.IsValid() || !writes(write.Type()) || grpc.SetSendCompressor(ctx, gzip.Name) != nil {
		return nil
	}
	return &wire{write, reflect.New(write.Type().In(2).Elem())}
}

// writes reports whether a method is the one that writes a message's header and content.
func writes(t reflect.Type) bool {
	if t.NumIn() != 3 || t.NumOut() != 1 || t.Out(0) != reflect.TypeFor[error]() {
		return false
	}
	header, content, options := t.In(0), t.In(1), t.In(2)
	return header == reflect.TypeFor[[]byte]() && content == reflect.TypeFor[mem.BufferSlice]() && options.Kind() == reflect.Pointer
}

// send writes a message, which is a gzip member or, with 0, plain.
func (w *wire) send(message mem.BufferSlice, gzipped byte) error {
	header := binary.BigEndian.AppendUint32([]byte{gzipped}, uint32(message.Len())) //nolint:gosec // see hand
	out := w.write.Call([]reflect.Value{reflect.ValueOf(header), reflect.ValueOf(message), w.options})
	err, _ := out[0].Interface().(error)
	return err
}

// answersPlainly keeps gRPC from compressing what it answers to a client that compresses its requests.
func answersPlainly(ctx context.Context) {
	if to, ok := grpc.ServerTransportStreamFromContext(ctx).(answerer); ok {
		_ = to.SetSendCompress("") // an error means that the client is gone
	}
}

// answerer decides how what a client gets is compressed; "" is not at all. gRPC implements it on the
// stream in the context.
type answerer interface{ SetSendCompress(name string) error }

// answers decides whether a stream is one for gzip members, before anybody sends on it.
func (st *stream) answers(ctx context.Context) {
	if st.server.config.Gzip {
		st.wire = wireOf(ctx)
	}
	if st.wire == nil {
		answersPlainly(ctx)
	}
}

// pack returns a response as a gzip member, if the client gets it as one.
func (st *stream) pack(r *session.Response, f *frame) mem.BufferSlice {
	if st.wire == nil || f.size < leastDeflated {
		return nil
	}
	return st.server.deflated.pack(r, f)
}

// hand hands a frame, or the gzip member made of it, to gRPC. It refuses what is too large for a message.
func (st *stream) hand(f *frame, member mem.BufferSlice) error {
	switch {
	case st.wire == nil, f.size > math.MaxInt32:
		return st.grpc.SendMsg(f)
	case member != nil:
		return st.wire.send(member, 1)
	}
	return st.wire.send(f.bufs, 0)
}
