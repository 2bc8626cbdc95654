//go:build linux

package attack

import (
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// beat is the name of the resource that changes all the time, of the type Endpoint, and every how often it does.
const (
	beat  = "beat"
	every = 50 * time.Millisecond
)

// plane is a control plane. It has one resource, beat, and says of all other names that they do not exist.
type plane struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	planeOptions
	addr string

	mu      sync.Mutex
	count   int
	made    map[int]time.Time // when the beats were made
	streams map[*planeStream]bool
}

// planeOptions are how a control plane behaves.
type planeOptions struct {
	// SotW: it has no Delta.
	SotW bool
	// Strict: it ends a stream on which a type is asked for that it does not know.
	Strict bool
	// MaxHeaders is how many bytes of headers it takes; 0: gRPC's default.
	MaxHeaders uint32
	// Serve is what it has beside beat, for a node; nil for what does not exist.
	Serve func(node string, t cache.TypeURL, name string) *anypb.Any
	// MaxAge is after how long it says GOAWAY on a connection, and after as long again closes it; 0: never.
	MaxAge time.Duration
	// Harm is what a broken one does on each Delta stream, beside the beats.
	Harm func(s *planeStream)
}

// planeStream is one stream to it.
type planeStream struct {
	plane *plane
	beats chan struct{} // has one element when there is a new beat
	done  <-chan struct{}

	sending sync.Mutex
	delta   grpc.BidiStreamingServer[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse]
	sotw    grpc.BidiStreamingServer[discovery.DiscoveryRequest, discovery.DiscoveryResponse]
	nonces  int    // guarded by sending
	node    string // the id of the relay's node on it; the receiver's

	mu    sync.Mutex
	wants bool // beat is subscribed to
}

func startPlane(t *testing.T, o planeOptions) *plane {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{planeOptions: o, addr: l.Addr().String(), made: make(map[int]time.Time), streams: make(map[*planeStream]bool)}
	p.beat()
	var options []grpc.ServerOption
	if o.MaxHeaders > 0 {
		options = append(options, grpc.MaxHeaderListSize(o.MaxHeaders))
	}
	if o.MaxAge > 0 {
		options = append(options, grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: o.MaxAge, MaxConnectionAgeGrace: o.MaxAge}))
	}
	s := grpc.NewServer(append(options, grpc.MaxRecvMsgSize(64<<20))...)
	discovery.RegisterAggregatedDiscoveryServiceServer(s, p)
	go func() { _ = s.Serve(l) }() // the error is that it was stopped
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(every); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				p.beat()
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
		s.Stop()
	})
	return p
}

// beat changes the resource.
func (p *plane) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	p.made[p.count] = time.Now()
	for s := range p.streams {
		select {
		case s.beats <- struct{}{}:
		default:
		}
	}
}

// when is when a beat was made.
func (p *plane) when(n int) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made[n]
}

// now is the resource as it is now, with its number.
func (p *plane) now() (*anypb.Any, string) {
	p.mu.Lock()
	n := strconv.Itoa(p.count)
	p.mu.Unlock()
	return assignment(beat, n), n
}

// assignment is a resource of type Endpoint that holds a text.
func assignment(name, text string) *anypb.Any {
	return packed(&endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{{Locality: &core.Locality{Zone: text}}}})
}

// said is the text that a resource holds.
func said(body *anypb.Any) string {
	var a endpoint.ClusterLoadAssignment
	if body.UnmarshalTo(&a) != nil || len(a.GetEndpoints()) == 0 {
		return ""
	}
	return a.GetEndpoints()[0].GetLocality().GetZone()
}

func packed(m proto.Message) *anypb.Any {
	body, err := anypb.New(m)
	if err != nil {
		panic(err) // it is a message of this package's
	}
	return body
}

// known are the types about which a strict one can be asked.
var known = map[cache.TypeURL]bool{cache.Listener: true, cache.Cluster: true, cache.Endpoint: true, cache.Route: true, cache.Secret: true}

func (p *plane) join(done <-chan struct{}) *planeStream {
	s := &planeStream{plane: p, beats: make(chan struct{}, 1), done: done}
	p.mu.Lock()
	p.streams[s] = true
	p.mu.Unlock()
	return s
}

func (p *plane) leave(s *planeStream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.streams, s)
}

// refuses is why it ends a stream on which a type is asked for.
func (p *plane) refuses(t string) error {
	if p.Strict && !known[cache.TypeURL(t)] {
		return status.Errorf(codes.InvalidArgument, "unknown type %q", t)
	}
	return nil
}

// DeltaAggregatedResources implements the service.
func (p *plane) DeltaAggregatedResources(g grpc.BidiStreamingServer[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse]) error {
	if p.SotW {
		return status.Error(codes.Unimplemented, "this control plane has no Delta")
	}
	s := p.join(g.Context().Done())
	s.delta = g
	defer p.leave(s)
	go s.beatOn()
	if p.Harm != nil {
		go p.Harm(s)
	}
	for {
		req, err := g.Recv()
		if err != nil {
			return err
		}
		if err := p.refuses(req.GetTypeUrl()); err != nil {
			return err
		}
		if err := s.answer(req); err != nil {
			return err
		}
	}
}

// answer says of the names of a request what they lead to, or that they do not exist; beat goes its own way.
func (s *planeStream) answer(req *discovery.DeltaDiscoveryRequest) error {
	if id := req.GetNode().GetId(); id != "" {
		s.node = id
	}
	r := &discovery.DeltaDiscoveryResponse{TypeUrl: req.GetTypeUrl()}
	for _, name := range req.GetResourceNamesSubscribe() {
		switch {
		case name == beat && req.GetTypeUrl() == string(cache.Endpoint):
			s.want(true)
		case name != "*":
			s.lookUp(r, name)
		}
	}
	if len(r.GetResources())+len(r.GetRemovedResources()) == 0 {
		return nil
	}
	return s.send(r)
}

// lookUp adds a name to a response.
func (s *planeStream) lookUp(r *discovery.DeltaDiscoveryResponse, name string) {
	var body *anypb.Any
	if s.plane.Serve != nil {
		body = s.plane.Serve(s.node, cache.TypeURL(r.GetTypeUrl()), name)
	}
	if body == nil {
		r.RemovedResources = append(r.RemovedResources, name)
		return
	}
	r.Resources = append(r.Resources, &discovery.Resource{Name: name, Version: "1", Resource: body})
}

func (s *planeStream) want(yes bool) {
	s.mu.Lock()
	s.wants = yes
	s.mu.Unlock()
	if yes {
		select {
		case s.beats <- struct{}{}:
		default:
		}
	}
}

// send sends a Delta response, with a nonce.
func (s *planeStream) send(r *discovery.DeltaDiscoveryResponse) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.nonces++
	r.Nonce = strconv.Itoa(s.nonces)
	return s.delta.Send(r)
}

// sendAsIs sends one with the nonce that it has.
func (s *planeStream) sendAsIs(r *discovery.DeltaDiscoveryResponse) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.delta.Send(r)
}

// beatOn sends each beat, or the latest of them.
func (s *planeStream) beatOn() {
	for {
		select {
		case <-s.done:
			return
		case <-s.beats:
		}
		s.mu.Lock()
		wants := s.wants
		s.mu.Unlock()
		if !wants {
			continue
		}
		body, version := s.plane.now()
		var err error
		if s.delta != nil {
			err = s.send(&discovery.DeltaDiscoveryResponse{TypeUrl: string(cache.Endpoint), Resources: []*discovery.Resource{{Name: beat, Version: version, Resource: body}}})
		} else {
			err = s.sotw.Send(&discovery.DiscoveryResponse{TypeUrl: string(cache.Endpoint), VersionInfo: version, Nonce: version, Resources: []*anypb.Any{body}})
		}
		if err != nil {
			return
		}
	}
}

// StreamAggregatedResources implements the service.
func (p *plane) StreamAggregatedResources(g grpc.BidiStreamingServer[discovery.DiscoveryRequest, discovery.DiscoveryResponse]) error {
	s := p.join(g.Context().Done())
	s.sotw = g
	defer p.leave(s)
	go s.beatOn()
	for {
		req, err := g.Recv()
		if err != nil {
			return err
		}
		if err := p.refuses(req.GetTypeUrl()); err != nil {
			return err
		}
		if req.GetTypeUrl() == string(cache.Endpoint) {
			wants := false
			for _, name := range req.GetResourceNames() {
				wants = wants || name == beat
			}
			s.mu.Lock()
			news := wants != s.wants
			s.mu.Unlock()
			if news {
				s.want(wants)
			}
		}
	}
}
