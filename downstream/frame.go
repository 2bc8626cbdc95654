package downstream

import (
	"cmp"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec for all other messages
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/passthrough"
)

// frame is a response in wire form: a header made for one client, and references
// to resources that were encoded once for all (VALID-7).
type frame struct {
	bufs mem.BufferSlice
	size int

	// Room for the parts of most responses, so that these need one allocation.
	room   [2]mem.Buffer
	slices [2]mem.SliceBuffer
	nonce  [48]byte
}

// encode makes the wire form of a response. It runs under no lock.
func encode(r *session.Response) *frame {
	f := new(frame)
	f.bufs = f.room[:0]
	if shared := sharedOf(r); shared != nil {
		f.bufs = append(slices.Grow(f.bufs, len(shared.bufs)+1), shared.bufs...)
		f.size = shared.size
		f.add(r.AppendRest(r.AppendNonce(f.nonce[:0])))
	} else {
		f.bufs = slices.Grow(f.bufs, len(r.Resources)+1)
		f.add(r.AppendRest(r.Head()))
		for _, res := range r.Resources {
			switch ttl, limited := r.TTL(res); {
			case limited:
				f.limited(r.Delta, res.Content(), ttl)
			case r.Wrapped:
				f.add(session.Wrapped(len(res.Content())))
				f.add(res.Content())
			default:
				f.add(wireForm(res, r.Delta))
			}
		}
	}
	for _, res := range r.Heartbeats {
		ttl, _ := r.TTL(res)
		f.limited(r.Delta, res.Heading(), ttl)
	}
	return f
}

// wireForm returns a resource as a field of a response.
func wireForm(r *cache.Resource, delta bool) []byte {
	if delta {
		return r.Element()
	}
	return r.Body()
}

// shared is the part of a response that other responses have, too: the resources, and the fixed
// fields without the nonce.
type shared struct {
	frame
	version, identifier string
	deflated            lazy
}

// sharedOf returns that part, or nil if this response has none.
func sharedOf(r *session.Response) *shared {
	others := r.Ends != nil || r.Wrapped // not all send these as they are
	if r.News == nil || others || !r.News.Lists(r.Resources) {
		return nil
	}
	variant := 0
	if r.Delta {
		variant = 1
	}
	s := r.News.Wire(variant, func(resources []*cache.Resource) any {
		s := &shared{version: r.Version, identifier: r.Identifier}
		s.add(r.AppendFixed(nil))
		for _, res := range resources {
			s.add(wireForm(res, r.Delta))
		}
		if s.size <= cmp.Or(r.Block, session.DefaultBounds.Block) {
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

// limited adds a Resource message with a TTL. The message is shared; the TTL after it is this
// client's.
func (f *frame) limited(delta bool, message []byte, ttl time.Duration) {
	head, tail := session.Limited(delta, len(message), ttl)
	f.add(head)
	f.add(message)
	f.add(tail)
}

// Marshal returns a response's wire form in one piece. The gRPC edge does not need it, since it
// hands a frame over in parts.
func Marshal(r *session.Response) []byte { return encode(r).bufs.Materialize() }

// inbox takes in a request, or only the reason why it is refused before a message is made of it. gRPC's
// own limit is higher, and its error does not say what to do. It is used for all of a stream's
// requests, one after the other.
type inbox struct {
	delta   bool
	v2      bool
	limit   int // in bytes
	from    receiver
	refused *session.End
	request proto.Message // nil if the request is bare
	bare    session.Bare
}

func (in *inbox) unmarshal(data mem.BufferSlice, codec encoding.CodecV2) (err error) {
	defer in.from.takenIn(data.Len())
	in.request, in.refused = nil, nil
	if size := data.Len(); size > in.limit {
		in.refused = tooLarge(size, in.limit)
		return nil
	}
	if len(data) == 1 && in.bare.Read(data[0].ReadOnlyData(), in.delta) {
		return nil
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	if in.refused = session.Weigh(whole.ReadOnlyData(), in.delta, in.limit); in.refused != nil {
		return nil
	}
	if in.delta {
		in.request = new(discovery.DeltaDiscoveryRequest)
	} else {
		in.request = new(discovery.DiscoveryRequest)
	}
	aside(func() { err = codec.Unmarshal(mem.BufferSlice{whole}, in.request) })
	if in.v2 && err == nil {
		in.refused = foreignToV2(in.request)
	}
	return err
}

// names is how many names and versions the request has.
func (in *inbox) names() int {
	switch req := in.request.(type) {
	case *discovery.DeltaDiscoveryRequest:
		return len(req.GetResourceNamesSubscribe()) + len(req.GetResourceNamesUnsubscribe()) + len(req.GetInitialResourceVersions())
	case *discovery.DiscoveryRequest:
		return len(req.GetResourceNames())
	}
	return 0
}

// sotw returns the SotW request that was taken in, or why there is none.
func (in *inbox) sotw() (*discovery.DiscoveryRequest, *session.End) {
	m, end := in.request, in.refused
	if m == nil && end == nil {
		m, end = in.bare.Message(false)
	}
	if end != nil {
		return nil, end
	}
	return m.(*discovery.DiscoveryRequest), nil
}

// codec lets frames, and messages of other services, through as they are, keeps oversized requests out, and hands
// every other message to the standard codec.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch out := v.(type) {
	case *frame:
		return out.bufs, nil
	case *passthrough.Message:
		return out.Hand(), nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch in := v.(type) {
	case *inbox:
		return in.unmarshal(data, c.CodecV2)
	case *parcel:
		in.keep(data)
		return nil
	case *probe:
		return in.unmarshal(data.Len(), func(into any) error { return c.CodecV2.Unmarshal(data, into) })
	}
	return c.CodecV2.Unmarshal(data, v)
}
