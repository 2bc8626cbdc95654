package downstream

import (
	"cmp"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec for all other messages
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
)

// frame is a response in wire form: a header made for one client, and references
// to resources that were encoded once for all (VALID-7).
type frame struct {
	bufs mem.BufferSlice
	size int

	// Room for what most responses consist of, which are allocated as one.
	room   [2]mem.Buffer
	slices [2]mem.SliceBuffer
	nonce  [48]byte
}

// Field numbers of DeltaDiscoveryResponse and DiscoveryResponse.
const (
	fieldResources = 2 // in both
	fieldTypeURL   = 4 // in both

	deltaSystemVersion = 1
	deltaNonce         = 5
	deltaRemoved       = 6
	deltaControlPlane  = 7
	deltaErrors        = 9

	sotwVersion      = 1
	sotwNonce        = 5
	sotwControlPlane = 6
	sotwErrors       = 7

	controlPlaneIdentifier = 1

	// Of Resource, of the google.protobuf.Duration in it, and of the Any around it.
	resourceTTL     = 6
	durationSeconds = 1
	durationNanos   = 2
	anyTypeURL      = 1
	anyValue        = 2
	wrapperType     = "type.googleapis.com/envoy.service.discovery.v3.Resource"
)

// head is what a response says before its contents.
func (r *Response) head() []byte {
	return r.appendNonce(r.appendFixed(make([]byte, 0, 256)))
}

// appendFixed appends what is the same in all responses that say the same.
func (r *Response) appendFixed(head []byte) []byte {
	version, plane := protowire.Number(sotwVersion), protowire.Number(sotwControlPlane)
	if r.Delta {
		version, plane = deltaSystemVersion, deltaControlPlane
	}
	head = appendString(head, version, r.Version)
	head = appendString(head, fieldTypeURL, string(r.Type))
	if r.Identifier != "" {
		head = protowire.AppendTag(head, plane, protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(sizeOf(controlPlaneIdentifier, len(r.Identifier))))
		head = appendString(head, controlPlaneIdentifier, r.Identifier)
	}
	return head
}

func (r *Response) appendNonce(head []byte) []byte {
	nonce := protowire.Number(sotwNonce)
	if r.Delta {
		nonce = deltaNonce
	}
	return appendString(head, nonce, r.Nonce)
}

// encode writes what is this client's alone; it runs under no lock.
func encode(r *Response) *frame {
	f := new(frame)
	f.bufs = f.room[:0]
	if shared := r.shared(); shared != nil {
		f.bufs = append(slices.Grow(f.bufs, len(shared.bufs)+1), shared.bufs...)
		f.size = shared.size
		f.add(r.appendRest(r.appendNonce(f.nonce[:0])))
	} else {
		f.bufs = slices.Grow(f.bufs, len(r.Resources)+1)
		f.add(r.appendRest(r.head()))
		f.addAll(r)
	}
	for _, res := range r.Heartbeats {
		ttl, _ := r.ttl(res)
		f.limited(r.Delta, res.Heading(), ttl)
	}
	return f
}

// appendRest appends removals and errors.
func (r *Response) appendRest(b []byte) []byte {
	errors := protowire.Number(sotwErrors)
	if r.Delta {
		errors = deltaErrors
	}
	for _, name := range r.Removed {
		b = protowire.AppendTag(b, deltaRemoved, protowire.BytesType)
		b = protowire.AppendString(b, name)
	}
	for _, e := range r.Errors {
		b = appendError(b, errors, e)
	}
	return b
}

// addAll adds the resources of a response.
func (f *frame) addAll(r *Response) {
	for _, res := range r.Resources {
		if ttl, ok := r.ttl(res); ok {
			f.limited(r.Delta, res.Content(), ttl)
		} else {
			f.add(wireForm(res, r.Delta))
		}
	}
}

// wireForm is a resource as a field of a response.
func wireForm(r *cache.Resource, delta bool) []byte {
	if delta {
		return r.Element()
	}
	return r.Body()
}

// shared is the part of a response that others send, too: its resources, and what it
// says of itself except the nonce.
type shared struct {
	frame
	version, identifier string
}

// shared is that part, or nil if this response has none.
func (r *Response) shared() *shared {
	if r.News == nil || r.Ends != nil || !r.News.Lists(r.Resources) {
		return nil
	}
	variant := 0
	if r.Delta {
		variant = 1
	}
	s := r.News.Wire(variant, func(resources []*cache.Resource) any {
		s := &shared{version: r.Version, identifier: r.Identifier}
		s.add(r.appendFixed(nil))
		for _, res := range resources {
			s.add(wireForm(res, r.Delta))
		}
		if s.size <= cmp.Or(r.block, DefaultBounds.Block) {
			s.frame = frame{bufs: mem.BufferSlice{mem.SliceBuffer(s.bufs.Materialize())}, size: s.size}
		}
		return s
	}).(*shared)
	if s.version != r.Version || s.identifier != r.Identifier {
		return nil
	}
	return s
}

func (f *frame) add(b []byte) {
	f.size += len(b)
	n := len(f.bufs)
	if n >= len(f.slices) {
		f.bufs = append(f.bufs, mem.SliceBuffer(b))
		return
	}
	f.slices[n] = b
	f.bufs = append(f.bufs, &f.slices[n])
}

// maxTTL is what the field of a TTL takes at most, in bytes.
const maxTTL = 24

// limited adds a Resource message that is good for a time. The message is shared;
// the TTL behind it is this client's. SotW has it inside of an Any (TTL-6).
func (f *frame) limited(delta bool, message []byte, ttl time.Duration) {
	tail := protowire.AppendTag(nil, resourceTTL, protowire.BytesType)
	var d []byte
	if s := int64(ttl / time.Second); s > 0 {
		d = protowire.AppendVarint(protowire.AppendTag(d, durationSeconds, protowire.VarintType), uint64(s))
	}
	if ns := int64(ttl % time.Second); ns > 0 {
		d = protowire.AppendVarint(protowire.AppendTag(d, durationNanos, protowire.VarintType), uint64(ns))
	}
	tail = protowire.AppendBytes(tail, d)

	size := uint64(len(message) + len(tail))
	head := protowire.AppendTag(nil, fieldResources, protowire.BytesType)
	if !delta {
		wrapper := appendString(nil, anyTypeURL, wrapperType)
		wrapper = protowire.AppendTag(wrapper, anyValue, protowire.BytesType)
		wrapper = protowire.AppendVarint(wrapper, size)
		head = protowire.AppendVarint(head, uint64(len(wrapper))+size)
		head = append(head, wrapper...)
	} else {
		head = protowire.AppendVarint(head, size)
	}
	f.add(head)
	f.add(message)
	f.add(tail)
}

// Marshal is the response's wire form in one piece. The gRPC edge has no use for
// it: there, a frame is handed over in parts.
func (r *Response) Marshal() []byte { return encode(r).bufs.Materialize() }

func appendString(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, s)
}

func appendError(b []byte, field protowire.Number, e *discovery.ResourceError) []byte {
	enc, err := proto.Marshal(e)
	if err != nil {
		// A message from upstream that is not valid UTF-8 after all: tell the
		// name, which is what matters.
		e = &discovery.ResourceError{ResourceName: e.GetResourceName()}
		if enc, err = proto.Marshal(e); err != nil {
			return b
		}
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendBytes(b, enc)
}

// inbox takes in a request, or only its size if that is over the limit: gRPC's own
// limit, which is higher, has no words for what to do about it. It is used for all of
// a stream's requests, one after the other.
type inbox struct {
	delta       bool
	size, limit int
	request     proto.Message // nil: it is bare
	bare        bare
}

func (in *inbox) unmarshal(data mem.BufferSlice, codec encoding.CodecV2) error {
	in.request = nil
	if in.size = data.Len(); in.size > in.limit {
		return nil
	}
	if len(data) == 1 && in.bare.read(data[0].ReadOnlyData(), in.delta) {
		return nil
	}
	if in.delta {
		in.request = new(discovery.DeltaDiscoveryRequest)
	} else {
		in.request = new(discovery.DiscoveryRequest)
	}
	return in.decode(data, codec)
}

func (in *inbox) decode(data mem.BufferSlice, codec encoding.CodecV2) (err error) {
	aside(func() { err = codec.Unmarshal(data, in.request) })
	return err
}

// codec lets frames through as they are, keeps oversized requests out, and hands
// every other message to the standard codec.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return f.bufs, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if in, ok := v.(*inbox); ok {
		return in.unmarshal(data, c.CodecV2)
	}
	return c.CodecV2.Unmarshal(data, v)
}
