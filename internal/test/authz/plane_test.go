package authz_test

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// plane is a control plane that speaks Delta ADS and has what a test puts there. It gives everything to whoever
// asks: it knows the relay only.
type plane struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	addr string

	mu      sync.Mutex
	has     map[cache.TypeURL]map[string]*discovery.Resource
	streams map[*planeStream]bool
	asked   map[cache.TypeURL]map[string]bool // names that relays have ever asked for
	version int
}

// planeStream is a relay's stream.
type planeStream struct {
	wake chan struct{}

	// Guarded by the mutex of the plane: what it is subscribed to, and what of it is to be said.
	wants, owed map[cache.TypeURL]map[string]bool
	nonce       int
}

func startPlane(t testing.TB) *plane {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{
		addr: l.Addr().String(), has: make(map[cache.TypeURL]map[string]*discovery.Resource), streams: make(map[*planeStream]bool),
		asked: make(map[cache.TypeURL]map[string]bool),
	}
	s := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(s, p)
	go func() { _ = s.Serve(l) }() // the error is that it was stopped
	t.Cleanup(s.Stop)
	return p
}

// put adds an element to one of the sets in a map.
func put[K comparable, E comparable](m map[K]map[E]bool, k K, e E) {
	if m[k] == nil {
		m[k] = make(map[E]bool)
	}
	m[k][e] = true
}

// set gives a resource a text, and tells whoever wants it.
func (p *plane) set(t cache.TypeURL, name, text string, aliases ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version++
	if p.has[t] == nil {
		p.has[t] = make(map[string]*discovery.Resource)
	}
	p.has[t][name] = &discovery.Resource{Name: name, Aliases: aliases, Version: strconv.Itoa(p.version), Resource: body(t, name, text)}
	p.tell(t, name, aliases...)
}

// remove removes a resource.
func (p *plane) remove(t cache.TypeURL, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	aliases := p.has[t][name].GetAliases()
	delete(p.has[t], name)
	p.tell(t, name, aliases...)
}

func (p *plane) tell(t cache.TypeURL, name string, aliases ...string) {
	for s := range p.streams {
		for _, led := range append(aliases, name) {
			if s.wants[t][led] {
				put(s.owed, t, led)
			}
		}
		if s.wants[t]["*"] {
			put(s.owed, t, name)
		}
		s.kick()
	}
}

func (s *planeStream) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// DeltaAggregatedResources implements the service.
func (p *plane) DeltaAggregatedResources(g grpc.BidiStreamingServer[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse]) error {
	s := &planeStream{wake: make(chan struct{}, 1), wants: make(map[cache.TypeURL]map[string]bool), owed: make(map[cache.TypeURL]map[string]bool)}
	p.mu.Lock()
	p.streams[s] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.streams, s)
		p.mu.Unlock()
	}()
	go func() {
		for {
			req, err := g.Recv()
			if err != nil {
				return // the stream is over
			}
			p.hear(s, req)
		}
	}()
	for {
		select {
		case <-g.Context().Done():
			return nil
		case <-s.wake:
		}
		for _, r := range p.says(s) {
			if err := g.Send(r); err != nil {
				return err
			}
		}
	}
}

func (p *plane) hear(s *planeStream, req *discovery.DeltaDiscoveryRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := cache.TypeURL(req.GetTypeUrl())
	for _, name := range req.GetResourceNamesUnsubscribe() {
		delete(s.wants[t], name)
	}
	subscribe := req.GetResourceNamesSubscribe()
	if s.wants[t] == nil && len(subscribe) == 0 {
		subscribe = []string{"*"} // a first request that names nothing
	}
	for _, name := range subscribe {
		put(p.asked, t, name)
		put(s.wants, t, name)
		put(s.owed, t, name)
		if name == "*" {
			for name := range p.has[t] {
				put(s.owed, t, name)
			}
		}
	}
	s.kick()
}

// says returns what the stream is owed.
func (p *plane) says(s *planeStream) (all []*discovery.DeltaDiscoveryResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for t, names := range s.owed {
		s.nonce++
		r := &discovery.DeltaDiscoveryResponse{TypeUrl: string(t), Nonce: strconv.Itoa(s.nonce)}
		said := make(map[string]bool)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			switch res := p.find(t, name); {
			case res != nil && !said[res.GetName()]:
				said[res.GetName()] = true
				r.Resources = append(r.Resources, res)
			case res == nil && name != "*":
				r.RemovedResources = append(r.RemovedResources, name)
			}
		}
		all = append(all, r)
	}
	clear(s.owed)
	return all
}

// find returns what a name or an alias leads to.
func (p *plane) find(t cache.TypeURL, name string) *discovery.Resource {
	if r := p.has[t][name]; r != nil {
		return r
	}
	for _, own := range slices.Sorted(maps.Keys(p.has[t])) {
		if slices.Contains(p.has[t][own].GetAliases(), name) {
			return p.has[t][own]
		}
	}
	return nil
}

// takeAsked returns the names of a type that relays have asked for since the last call.
func (p *plane) takeAsked() map[cache.TypeURL]map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = make(map[cache.TypeURL]map[string]bool)
	return asked
}

// relayStreams is how many streams are open.
func (p *plane) relayStreams() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.streams)
}

// textField is that of a body that holds its text; no type has a field with that number.
const textField = 19_000

// body is a resource of nearly any type: its name is in field 1.
func body(t cache.TypeURL, name, text string) *anypb.Any {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	b = protowire.AppendString(protowire.AppendTag(b, textField, protowire.BytesType), text)
	return &anypb.Any{TypeUrl: string(t), Value: b}
}

// nameIn reads a body.
func nameIn(a *anypb.Any) (name, text string) {
	for b := a.GetValue(); len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 || kind != protowire.BytesType {
			return "", ""
		}
		value, m := protowire.ConsumeString(b[n:])
		if m < 0 {
			return "", ""
		}
		if number == 1 {
			name = value
		} else {
			text = value
		}
		b = b[n+m:]
	}
	return cmp.Or(name, "?"), text
}
