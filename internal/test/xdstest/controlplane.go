package xdstest

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// StreamKindHeader is how a relay tells its upstream streams apart: main, aux, solo, trial or probe. Without it a stream is a main one.
const StreamKindHeader = "x-xds-relay-stream"

// ViaHeader lists the relays that a stream has come through.
const ViaHeader = "x-xds-relay-via"

// ControlPlane is a scripted ADS server, Delta and SotW. It says only what it is told to, and counts.
type ControlPlane struct {
	*mailbox
	prefix string // of its actors' names
	// Show is what a transcript wants printed. Set it before anybody connects.
	Show []string

	server *grpc.Server

	mu      sync.Mutex
	streams map[string]*upstream // open ones, by actor
	opened  int
	heard   int // of them, before the last Heard
}

// upstream is the control plane's end of one stream of the relay.
type upstream struct {
	grpc.ServerStream
	actor  string
	kind   string // what its actor is called, without the number
	number int    // and that; 1 is not written
	nth    int    // of those that were ever opened
	sotw   bool
	end    chan error // one slot: how the control plane ends it

	// The ControlPlane's mutex guards these.
	ended      bool                       // by the control plane: what comes after is not heard
	subscribed map[string]map[string]bool // type URL → names
}

// NewControlPlane serves on the listener until Stop.
func NewControlPlane(listener net.Listener) *ControlPlane { return newControlPlane("", listener) }

func newControlPlane(prefix string, listener net.Listener) *ControlPlane {
	p := &ControlPlane{mailbox: newMailbox(), prefix: prefix, streams: map[string]*upstream{}}
	p.server = grpc.NewServer(grpc.ForceServerCodecV2(newCodec()))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(p.server, service{p: p})
	go func() { _ = p.server.Serve(listener) }() // an error is the listener's end, and Stop brings that about
	return p
}

// Stop closes every connection and the listener.
func (p *ControlPlane) Stop() {
	p.HangUp()
	p.server.Stop()
}

// HangUp makes the control plane deaf to the streams that are open: whatever ends them next, it is not the relay's doing.
func (p *ControlPlane) HangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for actor, s := range p.streams {
		s.ended = true
		delete(p.streams, actor)
	}
}

// Say sends a response or garbage on the actor's stream, or ends it.
func (p *ControlPlane) Say(actor string, c Command) error {
	p.mu.Lock()
	s := p.streams[actor]
	if s != nil && c.Verb == "end" {
		s.ended = true
		delete(p.streams, actor)
	}
	p.mu.Unlock()
	if s == nil {
		return fmt.Errorf("%s has no open stream; open are %q", actor, p.Open())
	}
	switch c.Verb {
	case "resp":
		m, err := c.Response(s.sotw)
		if err != nil {
			return err
		}
		return s.SendMsg(m)
	case "garbage":
		return s.SendMsg(garbage{})
	case "end":
		s.end <- status.Error(codes.Code(c.Status.Code), c.Status.Message)
		return nil
	}
	return fmt.Errorf("a control plane cannot %s", c.Verb)
}

// Streams is how many streams have ever been opened.
func (p *ControlPlane) Streams() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened
}

// Open lists the actors whose streams are open.
func (p *ControlPlane) Open() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.streams))
}

// Subscribed lists the names, "*" among them, that the actor's stream is subscribed to; the type is a short name or a URL.
func (p *ControlPlane) Subscribed(actor, short string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams[actor] == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(p.streams[actor].subscribed[TypeURL(short)]))
}

// service is the gRPC face.
type service struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	p *ControlPlane
}

func (s service) DeltaAggregatedResources(stream grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]) error {
	return s.p.serve(&upstream{ServerStream: stream}, func() proto.Message { return &discoveryv3.DeltaDiscoveryRequest{} })
}

func (s service) StreamAggregatedResources(stream grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]) error {
	return s.p.serve(&upstream{ServerStream: stream, sotw: true}, func() proto.Message { return &discoveryv3.DiscoveryRequest{} })
}

func (p *ControlPlane) serve(s *upstream, newRequest func() proto.Message) error {
	s.end = make(chan error, 1)
	s.subscribed = map[string]map[string]bool{}
	p.register(s)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		p.listen(s, newRequest)
	}()
	select {
	case err := <-s.end:
		return err
	case <-gone:
		select {
		case err := <-s.end:
			return err
		default:
			return nil
		}
	}
}

// register gives the stream the first free name of its kind.
func (p *ControlPlane) register(s *upstream) {
	kind := "up"
	md, _ := metadata.FromIncomingContext(s.Context())
	if v := md.Get(StreamKindHeader); len(v) > 0 && v[0] != "main" {
		kind = v[0]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened++
	s.kind, s.nth = p.prefix+kind, p.opened
	s.actor, s.number = s.kind, 1
	for p.streams[s.actor] != nil && p.streams[s.actor].Context().Err() == nil {
		s.number++
		s.actor = s.kind + strconv.Itoa(s.number)
	}
	if before := p.streams[s.actor]; before != nil {
		// It is over, though its own goroutine has not noticed yet.
		before.ended = true
		p.put(nil, Event{Actor: s.actor, Text: "closed"})
	}
	p.streams[s.actor] = s
}

// Heard takes everything that has come in since the last call.
func (p *ControlPlane) Heard() ([]Event, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = p.opened
	return p.mailbox.Heard()
}

// inherits gives the name of a stream that is over to one of its kind that was opened since the last Heard, as if that had been
// after the end: which comes first is chance if the relay does both at once.
func (p *ControlPlane) inherits(over *upstream) bool {
	for _, actor := range slices.Sorted(maps.Keys(p.streams)) {
		s := p.streams[actor]
		succeeds := s.kind == over.kind && s.number >= over.number && s.nth > p.heard
		if succeeds && p.rename(actor, over.actor) {
			delete(p.streams, actor)
			s.actor, s.number, p.streams[over.actor] = over.actor, over.number, s
			return true
		}
	}
	return false
}

// listen hears the relay out.
func (p *ControlPlane) listen(s *upstream, newRequest func() proto.Message) {
	ear := Ear{Show: p.Show}
	for first := true; ; first = false {
		m := newRequest()
		err := s.RecvMsg(m)
		p.mu.Lock()
		if s.ended {
			p.mu.Unlock()
			return
		}
		if err != nil {
			if p.streams[s.actor] == s {
				delete(p.streams, s.actor)
			}
			if !p.inherits(s) {
				p.put(nil, Event{Actor: s.actor, Text: "closed"})
			}
			p.mu.Unlock()
			return
		}
		s.subscribe(m)
		for i, text := range ear.Hear(m) {
			if first && i == 0 {
				md, _ := metadata.FromIncomingContext(s.Context())
				if slices.Contains(p.Show, "via") {
					text += " via=" + quote(strings.Join(md[ViaHeader], ","))
				}
				text += HeaderWords(md)
			}
			p.put(nil, Event{Actor: s.actor, Text: text, Message: m})
		}
		p.mu.Unlock()
	}
}

// HeaderWords prints the headers of a stream that no relay sends by itself (NODE-13), in order of name.
func HeaderWords(md map[string][]string) (words string) {
	for _, key := range slices.Sorted(maps.Keys(md)) {
		switch key {
		case ":authority", "content-type", "user-agent", "grpc-accept-encoding", StreamKindHeader, ViaHeader, "kind":
		default:
			words += " header=" + quote(key+":"+strings.Join(md[key], ","))
		}
	}
	return words
}

// subscribe keeps count of names; the legacy wildcard is not among them.
func (s *upstream) subscribe(m proto.Message) {
	switch req := m.(type) {
	case *discoveryv3.DeltaDiscoveryRequest:
		if s.subscribed[req.GetTypeUrl()] == nil {
			s.subscribed[req.GetTypeUrl()] = map[string]bool{}
		}
		for _, name := range req.GetResourceNamesSubscribe() {
			s.subscribed[req.GetTypeUrl()][name] = true
		}
		for _, name := range req.GetResourceNamesUnsubscribe() {
			delete(s.subscribed[req.GetTypeUrl()], name)
		}
	case *discoveryv3.DiscoveryRequest:
		names := map[string]bool{}
		for _, name := range req.GetResourceNames() {
			names[name] = true
		}
		s.subscribed[req.GetTypeUrl()] = names
	}
}
