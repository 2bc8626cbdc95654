package rest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/header"
	"github.com/xds-relay/xds-relay/internal/origin"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// Options say what is asked, and how.
type Options struct {
	origin.Options
	// URL is what the paths of REST-1 are below.
	URL       string
	Transport http.RoundTripper
	// Headers are the relay's own for the next request; nil: none.
	Headers func() ([]header.Header, error)
	// Poll is the time between two requests, Timeout how long one may take, and Wait how long the control plane may put off
	// its answer until something changes; 0: it may not.
	Poll, Timeout, Wait time.Duration
	// Waits is how many answers may be put off at once; others are polled for.
	Waits int
	// Remove: what is not in an answer does not exist, also if it was seen before (REST-12).
	Remove bool
	// MaxBytes bounds an answer.
	MaxBytes int
	// Messages are those that an answer may have.
	Messages *readable.Set
	// Fingerprint makes the versions of resources.
	Fingerprint cache.Fingerprint
	// Random yields numbers in [0, 1) for jitter; nil: math/rand.
	Random func() float64
}

// Source is a control plane within the process that asks another one over REST. Its methods may be called from any
// goroutine.
type Source struct {
	*origin.Server
	o      *Options
	client *client
	ctx    context.Context //nolint:containedctx // all pollers end with it
	cancel context.CancelFunc
	work   sync.WaitGroup
	waits  slots // taken while an answer may be put off

	mu      sync.Mutex
	streams map[any]*stream
	groups  map[[sha256.Size]byte]*memory
}

// New starts a Source. It asks for nothing that nobody wants.
func New(o Options) *Source {
	if o.Random == nil {
		o.Random = rand.Float64
	}
	s := &Source{o: &o, client: newClient(&o), waits: make(slots, o.Waits), streams: make(map[any]*stream), groups: make(map[[sha256.Size]byte]*memory)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.Server = origin.NewServer(o.Options, s)
	s.Open()
	return s
}

// Close ends all, and returns when nothing goes on any more.
func (s *Source) Close() {
	s.cancel()
	s.Server.Close()
	s.work.Wait()
	s.client.http.CloseIdleConnections()
}

// Key implements session.Groups. A stream stays where it is: the relay does not change its node.
func (s *Source) Key(session.Peer, *core.Node) (string, *session.End) { return "", nil }

// Join implements session.Groups. Each stream has a Hub of its own, so that what is in it was answered on that stream.
func (s *Source) Join(peer session.Peer, node *core.Node, t cache.TypeURL) (session.Membership, *session.End) {
	if s.o.urlOf(t) == "" || peer.End == nil {
		return session.Membership{Own: true}, refused("%s cannot be asked for over REST; ask another control plane for it, by upstream.by_type", t)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[peer.Stream]
	if st == nil {
		st = newStream(s, s.remember(node, peer.Headers), peer, node)
		s.streams[peer.Stream] = st
		s.work.Go(st.run)
	}
	st.types++
	return session.Membership{Hub: st.hub, Leave: func() { s.leave(peer.Stream) }}, nil
}

// leave is called once for each type of a stream.
func (s *Source) leave(key any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[key]
	if st.types--; st.types > 0 {
		return
	}
	delete(s.streams, key)
	st.cancel()
	st.memory.streams--
	st.memory.left = time.Now()
}

// remember returns what is known of a group, which is told from others by what the control plane is shown.
func (s *Source) remember(node *core.Node, headers []header.Header) *memory {
	h := sha256.New()
	shown, _ := proto.MarshalOptions{Deterministic: true}.Marshal(node) // what cannot be written is not sent either
	fmt.Fprintf(h, "%d %s", len(shown), shown)
	for _, one := range headers {
		fmt.Fprintf(h, "%q %q", one.Name, string(one.Value))
	}
	key := [sha256.Size]byte(h.Sum(nil))
	for k, m := range s.groups {
		if m.streams == 0 && time.Since(m.left) > remembered {
			delete(s.groups, k)
		}
	}
	m := s.groups[key]
	if m == nil {
		m = &memory{types: make(map[cache.TypeURL]*seen)}
		s.groups[key] = m
	}
	m.streams++
	return m
}
