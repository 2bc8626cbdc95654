package broadcast

import (
	"fmt"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/bench/internal/wire"
	"github.com/xds-relay/xds-relay/bench/internal/world"
)

// stream is one client.
type stream struct {
	server  *Server
	variant int
	grpc    grpc.ServerStream

	// Guarded by the server's mutex.
	answers int
	names   [2][]int // it has subscribed to, at some time

	mu    sync.Mutex
	queue []*frame
	wake  chan struct{}
}

// handler serves the streams of a variant: it receives, and a goroutine sends.
func (s *Server) handler(variant int) grpc.StreamHandler {
	return func(_ any, g grpc.ServerStream) error {
		if s.compares {
			select {
			case <-s.ready:
			case <-g.Context().Done():
				return nil
			}
		}
		s.streams.Add(1)
		st := &stream{server: s, variant: variant, grpc: g, wake: make(chan struct{}, 1)}
		defer st.leave()
		go st.sendAll()
		var r request
		for {
			if err := g.RecvMsg(&r); err != nil {
				return nil // however a client leaves, it has left
			}
			if wire.IsAck(variant == delta, r) {
				continue
			}
			if err := st.subscribe(r); err != nil {
				return err
			}
		}
	}
}

// send hands a frame to the sender, and does not wait.
func (st *stream) send(f *frame) {
	st.mu.Lock()
	st.queue = append(st.queue, f)
	st.mu.Unlock()
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

func (st *stream) sendAll() {
	done := st.grpc.Context().Done()
	for {
		select {
		case <-st.wake:
		case <-done:
			return
		}
		st.mu.Lock()
		queue := st.queue
		st.queue = nil
		st.mu.Unlock()
		for _, f := range queue {
			if st.grpc.SendMsg(f) != nil {
				return // the receiver notices
			}
			st.server.responses.Add(1)
			st.server.resources.Add(int64(f.resources))
			st.server.bytes.Add(int64(f.bytes))
		}
	}
}

// wish is what a request of either variant asks for.
type wish struct {
	typeURL  string
	add, del []string
	wildcard bool
	versions map[string]string
}

func (st *stream) read(b []byte) (w wish, err error) {
	if st.variant == sotw {
		var r discovery.DiscoveryRequest
		err = proto.Unmarshal(b, &r)
		return wish{typeURL: r.GetTypeUrl(), add: r.GetResourceNames(), wildcard: len(r.GetResourceNames()) == 0}, err
	}
	var r discovery.DeltaDiscoveryRequest
	err = proto.Unmarshal(b, &r)
	w = wish{typeURL: r.GetTypeUrl(), add: r.GetResourceNamesSubscribe(), del: r.GetResourceNamesUnsubscribe(), versions: r.GetInitialResourceVersions()}
	w.wildcard = len(w.add)+len(w.del) == 0
	return w, err
}

// subscribe takes in a request that asks for something, and answers it.
func (st *stream) subscribe(b []byte) error {
	w, err := st.read(b)
	if err != nil {
		return err
	}
	k, ok := world.KindOf(w.typeURL)
	if !ok {
		return fmt.Errorf("broadcast: no such type: %q", w.typeURL)
	}
	s := st.server
	s.mu.Lock()
	defer s.mu.Unlock()
	st.answers++
	tag := fmt.Sprintf(".%d", st.answers)
	for _, n := range w.del {
		if i, ok := s.index[k][n]; ok {
			s.forget(st, k, i)
		}
	}
	var elements [][]byte
	for _, n := range w.add {
		i, ok := s.index[k][n]
		switch {
		case n == "*":
			w.wildcard = true
		case ok:
			if s.named[k][i] == nil {
				s.named[k][i] = make(map[*stream]struct{})
			}
			s.named[k][i][st] = struct{}{}
			st.names[k] = append(st.names[k], i)
			elements = append(elements, s.elements[st.variant][k][i])
		}
	}
	if w.wildcard {
		s.wildcards[k][st] = struct{}{}
	}
	switch count := len(s.elements[st.variant][k]); {
	case len(w.versions) > 0 && !s.compares: // it is up to date
		st.send(s.frame(st.variant, k, tag, 0))
	case len(w.versions) > 0:
		elements = s.others(k, w)
		st.send(s.frame(st.variant, k, tag, len(elements), elements...))
	case w.wildcard:
		st.send(s.frame(st.variant, k, tag, count, s.all(st.variant, k)))
	case len(elements) > 0:
		st.send(s.frame(st.variant, k, tag, len(elements), elements...))
	}
	return nil
}

// others are the resources that a client asks for and has not, or has in another version.
func (s *Server) others(k world.Kind, w wish) (elements [][]byte) {
	add := func(name string, i int) {
		if w.versions[name] != s.versions[k][i] {
			elements = append(elements, s.elements[delta][k][i])
		}
	}
	if w.wildcard {
		for name, i := range s.index[k] {
			add(name, i)
		}
		return elements
	}
	for _, name := range w.add {
		if i, ok := s.index[k][name]; ok {
			add(name, i)
		}
	}
	return elements
}

// forget ends a client's interest in a name.
func (s *Server) forget(st *stream, k world.Kind, i int) {
	delete(s.named[k][i], st)
	if len(s.named[k][i]) == 0 {
		delete(s.named[k], i)
	}
}

// leave ends the client's subscriptions.
func (st *stream) leave() {
	s := st.server
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range world.Kinds {
		delete(s.wildcards[k], st)
		for _, i := range st.names[k] {
			s.forget(st, k, i)
		}
	}
}
