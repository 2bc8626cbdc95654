// Package broadcast owns an xDS server that does as little as one can: it sends
// ready-made bytes to whoever subscribed to them, and keeps no protocol state but
// who that is. It is the floor that other servers are measured against, and the
// control plane behind a relay. It never waits for an ACK, never merges changes,
// never removes anything, and does not compare the versions that a client shows.
package broadcast

import (
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/xds-relay/xds-relay/bench/internal/control"
	"github.com/xds-relay/xds-relay/bench/internal/wire"
	"github.com/xds-relay/xds-relay/bench/internal/world"
)

// Server is a control.Source, and an xDS server.
type Server struct {
	grpc     *grpc.Server
	compares bool
	ready    chan struct{} // closed when there is a world; an origin's clients wait for it
	once     sync.Once

	streams, responses, resources, bytes atomic.Int64

	mu    sync.Mutex
	world *world.World
	step  int
	// elements are the resources as they stand in a response, by variant, kind and
	// number; whole is all of a kind in one piece, made when it is first needed.
	elements [2][2][][]byte
	// bodies are the resources as step 0 made them, by kind and number; versions are the
	// steps that made what there is.
	bodies   [2][][]byte
	versions [2][]string
	whole    [2][2][]byte
	index    [2]map[string]int // numbers by name, by kind
	// Who subscribed to what.
	wildcards [2]map[*stream]struct{}
	named     [2]map[int]map[*stream]struct{}
}

var _ control.Source = (*Server)(nil)

// The first index of Server.elements.
const (
	delta = iota
	sotw
)

// New returns a server without resources.
func New(options ...grpc.ServerOption) *Server {
	s := &Server{ready: make(chan struct{})}
	s.grpc = grpc.NewServer(append([]grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{}), grpc.MaxRecvMsgSize(64 << 20),
	}, options...)...)
	s.grpc.RegisterService(&grpc.ServiceDesc{
		ServiceName: "envoy.service.discovery.v3.AggregatedDiscoveryService",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: "DeltaAggregatedResources", Handler: s.handler(delta), ServerStreams: true, ClientStreams: true},
			{StreamName: "StreamAggregatedResources", Handler: s.handler(sotw), ServerStreams: true, ClientStreams: true},
		},
	}, s)
	s.clear()
	return s
}

// NewOrigin returns a server that compares the versions that a client shows, and sends only
// the resources that differ. A relay that has outlived the previous control plane needs
// that. It may connect before the world is set, and then waits.
func NewOrigin(options ...grpc.ServerOption) *Server {
	s := New(options...)
	s.compares = true
	return s
}

// Serve serves until Stop.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// Stop ends all streams.
func (s *Server) Stop() { s.grpc.Stop() }

func (s *Server) clear() {
	for k := range world.Kinds {
		s.index[k] = make(map[string]int)
		s.wildcards[k] = make(map[*stream]struct{})
		s.named[k] = make(map[int]map[*stream]struct{})
	}
	s.elements, s.whole = [2][2][][]byte{}, [2][2][]byte{}
	s.bodies, s.versions = [2][][]byte{}, [2][]string{}
}

// World implements control.Source.
func (s *Server) World(spec world.Spec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range world.Kinds {
		if len(s.wildcards[k])+len(s.named[k]) > 0 {
			return fmt.Errorf("broadcast: there are clients: the world is set before they come")
		}
	}
	s.clear()
	s.world, s.step = world.New(spec), 0
	for _, k := range world.Kinds {
		for i := range s.world.Count(k) {
			s.index[k][s.world.Name(k, i)] = i
			s.bodies[k] = append(s.bodies[k], s.world.Body(k, i, 0))
			s.versions[k] = append(s.versions[k], "")
			s.make(k, i, 0)
		}
	}
	s.streams.Store(0)
	s.responses.Store(0)
	s.resources.Store(0)
	s.bytes.Store(0)
	s.once.Do(func() { close(s.ready) })
	return nil
}

// make makes the elements of a resource.
func (s *Server) make(k world.Kind, i, step int) {
	body, name := world.Stamp(s.bodies[k][i], step), s.world.Name(k, i)
	s.versions[k][i] = strconv.Itoa(step)
	for v := range s.elements {
		e := wire.Element(v == delta, name, s.versions[k][i], k.TypeURL(), body)
		if i == len(s.elements[v][k]) {
			s.elements[v][k] = append(s.elements[v][k], e)
		} else {
			s.elements[v][k][i] = e
		}
		s.whole[v][k] = nil
	}
}

// all is all resources of a kind in one piece.
func (s *Server) all(v int, k world.Kind) []byte {
	if s.whole[v][k] == nil {
		whole := []byte{}
		for _, e := range s.elements[v][k] {
			whole = append(whole, e...)
		}
		s.whole[v][k] = whole
	}
	return s.whole[v][k]
}

// Step implements control.Source: it tells everybody who asked.
func (s *Server) Step(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.world == nil {
		return fmt.Errorf("broadcast: step %d of no world", n)
	}
	s.step = n
	k, i := s.world.Changes, s.world.Changed(n)
	s.make(k, i, n)
	var made [2]*frame // shared by all clients of a variant
	push := func(st *stream) {
		if made[st.variant] == nil {
			made[st.variant] = s.update(st.variant, k, i)
		}
		st.send(made[st.variant])
	}
	for st := range s.wildcards[k] {
		push(st)
	}
	for st := range s.named[k][i] {
		push(st)
	}
	return nil
}

// update is the response that tells a change: in SotW, of clusters, all of them.
func (s *Server) update(v int, k world.Kind, i int) *frame {
	if v == sotw && k == world.Cluster {
		return s.frame(v, k, "", len(s.elements[v][k]), s.all(v, k))
	}
	return s.frame(v, k, "", 1, s.elements[v][k][i])
}

// frame is a response with these elements. tag tells answers from pushes.
func (s *Server) frame(v int, k world.Kind, tag string, count int, elements ...[]byte) *frame {
	step := strconv.Itoa(s.step)
	f := &frame{resources: count}
	f.add(wire.Head(v == delta, step, k.TypeURL(), strconv.Itoa(int(k))+"."+step+tag))
	for _, e := range elements {
		f.add(e)
	}
	return f
}

// Stats implements control.Source.
func (s *Server) Stats() (control.Stats, error) {
	return control.Stats{Streams: s.streams.Load(), Responses: s.responses.Load(), Resources: s.resources.Load(), Bytes: s.bytes.Load()}, nil
}

// frame is a response in wire form.
type frame struct {
	bufs      mem.BufferSlice
	bytes     int
	resources int
}

func (f *frame) add(b []byte) {
	if len(b) > 0 {
		f.bytes += len(b)
		f.bufs = append(f.bufs, mem.SliceBuffer(b))
	}
}

// request is a message as it came.
type request []byte

// codec passes bytes through.
type codec struct{}

var _ encoding.CodecV2 = codec{}

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) { return v.(*frame).bufs, nil }

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*request) = data.Materialize()
	return nil
}

// Name implements encoding.CodecV2.
func (codec) Name() string { return "proto" }
