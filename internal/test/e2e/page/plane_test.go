package page

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// plane is a control plane that speaks Delta, and has what a test puts into it.
type plane struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	addr string
	grpc *grpc.Server

	mu      sync.Mutex
	has     map[string]map[string]*discovery.Resource // by type URL and name
	changed map[chan struct{}]bool                    // one for each stream
}

func startPlane(t testing.TB) *plane {
	t.Helper()
	p := &plane{has: make(map[string]map[string]*discovery.Resource), changed: make(map[chan struct{}]bool)}
	p.serve(t, "127.0.0.1:0")
	t.Cleanup(func() { p.grpc.Stop() })
	return p
}

func (p *plane) serve(t testing.TB, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	p.addr, p.grpc = l.Addr().String(), grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(p.grpc, p)
	go p.grpc.Serve(l)
}

// put adds or changes resources.
func (p *plane) put(version int, named map[string]proto.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, m := range named {
		body, err := anypb.New(m)
		if err != nil {
			panic(err)
		}
		of := p.has[body.GetTypeUrl()]
		if of == nil {
			of = make(map[string]*discovery.Resource)
			p.has[body.GetTypeUrl()] = of
		}
		of[name] = &discovery.Resource{Name: name, Version: fmt.Sprint(version), Resource: body}
	}
	p.wake()
}

// take removes resources.
func (p *plane) take(typeURL string, names ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		delete(p.has[typeURL], name)
	}
	p.wake()
}

func (p *plane) wake() {
	for c := range p.changed {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// asked is what a stream asks for of a type, and was sent.
type asked struct {
	all   bool
	names map[string]bool
	sent  map[string]string
	new   map[string]bool // names to be answered in any case
}

func (p *plane) DeltaAggregatedResources(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	wake := make(chan struct{}, 1)
	p.mu.Lock()
	p.changed[wake] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.changed, wake)
	}()
	requests := make(chan *discovery.DeltaDiscoveryRequest)
	go func() {
		defer close(requests)
		for {
			req, err := s.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- req:
			case <-s.Context().Done():
				return
			}
		}
	}()
	types := make(map[string]*asked)
	nonce := 0
	for {
		select {
		case req, ok := <-requests:
			if !ok {
				return nil
			}
			take(types, req)
		case <-wake:
		}
		for _, typeURL := range slices.Sorted(maps.Keys(types)) {
			if resp := p.news(typeURL, types[typeURL]); resp != nil {
				nonce++
				resp.Nonce = fmt.Sprint(nonce)
				if err := s.Send(resp); err != nil {
					return err
				}
			}
		}
	}
}

func take(types map[string]*asked, req *discovery.DeltaDiscoveryRequest) {
	a, known := types[req.GetTypeUrl()]
	if !known {
		a = &asked{names: make(map[string]bool), sent: maps.Clone(req.GetInitialResourceVersions()), new: make(map[string]bool)}
		if a.sent == nil {
			a.sent = make(map[string]string)
		}
		types[req.GetTypeUrl()] = a
		a.all = len(req.GetResourceNamesSubscribe()) == 0
	}
	for _, name := range req.GetResourceNamesSubscribe() {
		if name == "*" {
			a.all = true
			continue
		}
		a.names[name], a.new[name] = true, true
	}
	for _, name := range req.GetResourceNamesUnsubscribe() {
		delete(a.names, name)
		delete(a.sent, name)
	}
}

// news is what a stream has to be told of a type, or nil.
func (p *plane) news(typeURL string, a *asked) *discovery.DeltaDiscoveryResponse {
	p.mu.Lock()
	defer p.mu.Unlock()
	resp := &discovery.DeltaDiscoveryResponse{TypeUrl: typeURL, SystemVersionInfo: "v"}
	for name, r := range p.has[typeURL] {
		if (a.all || a.names[name]) && (a.sent[name] != r.GetVersion() || a.new[name]) {
			resp.Resources = append(resp.Resources, r)
			a.sent[name] = r.GetVersion()
		}
	}
	for name := range a.new {
		if p.has[typeURL][name] == nil {
			resp.RemovedResources = append(resp.RemovedResources, name)
		}
		delete(a.new, name)
	}
	for name := range a.sent {
		if p.has[typeURL][name] == nil {
			resp.RemovedResources = append(resp.RemovedResources, name)
			delete(a.sent, name)
		}
	}
	if len(resp.GetResources())+len(resp.GetRemovedResources()) == 0 {
		return nil
	}
	return resp
}
