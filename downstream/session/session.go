package session

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/header"
)

// Config is what the server side needs to know of the configuration.
type Config struct {
	// Instance is the relay's name of itself in control_plane.identifier
	// (DOWN-DELTA-19).
	Instance string
	// Hop is the relay's id among the relays that a stream has come through, which no other
	// process has (NODE-11).
	Hop string
	// AckTimeout is how long pushes wait for an ACK, and removals for other
	// types (DOWN-DELTA-15, ORDER-2).
	AckTimeout time.Duration
	// ResendOnReconnect are types for which a client's versions spare it nothing
	// (DOWN-DELTA-8).
	ResendOnReconnect []cache.TypeURL
	// NeverSynthesize are types of which a Delta client is told that a name is gone
	// only if it has a copy (MISS-9).
	NeverSynthesize []cache.TypeURL
	// WarmingHold is how long changes of what refers to Clusters wait at most until the
	// client has acknowledged those; 0: they do not wait (ORDER-3).
	WarmingHold time.Duration
	// UnavailableAfter is how long a stream stays open before it is ended because
	// upstream does not answer (ERR-7). Random yields numbers in [0, 1), so that not all
	// end at once; nil: they do.
	UnavailableAfter time.Duration
	Random           func() float64
	// ForwardHeaders are the headers of a stream that go up with its group (NODE-13).
	ForwardHeaders []string
	// Types says what an empty first request means where no group does (NODE-14).
	Types cache.Types
	// MaxName and MaxNames bound one name, in bytes, and a stream's names
	// (VALID-8).
	MaxName, MaxNames int
	// MaxResponse bounds a response, in bytes; 0: nothing does (DOWN-DELTA-18,
	// ERR-13).
	MaxResponse int
	// Bounds are for tests; nil: DefaultBounds.
	Bounds *Bounds
}

// Stream says what kind of stream a Session serves.
type Stream struct {
	Delta bool
	// Type is the one type of a per-type method; empty: ADS.
	Type cache.TypeURL
}

// Groups decides which group a stream's types belong to. It is asked once for
// each type of a stream.
type Groups interface {
	// Key is all that a stream's groups depend on in a node, or why there is none
	// (NODE-3). nil stands for a first message without a node.
	Key(node *core.Node) (string, *End)
	// Join enters the group from which a type is served to the client (NODE-6). If it may
	// not, of the Membership only Own is set.
	Join(client Peer, node *core.Node, t cache.TypeURL) (Membership, *End)
}

// Membership is a stream's place in a group.
type Membership struct {
	Hub *fanout.Hub
	// Own: the group is not that of the stream's types that have none of their own
	// (NODE-6).
	Own bool
	// Leave is called when the stream is done with it.
	Leave func()
	// Renew is called with a node whose dynamic parameters have changed; nil: nobody
	// wants to know (NODE-2).
	Renew func(*core.Node)
}

// Peer is who is at the other end of a stream, as far as the connection tells.
type Peer struct {
	// Address is for people.
	Address string
	// Identity is what its TLS certificate proves, or "".
	Identity string
	// Local: it came over loopback or a Unix socket.
	Local bool
	// Via are the relays that the stream has come through, the nearest last
	// (NODE-11).
	Via []string
	// Headers are those of its stream that go up with its group, and Withheld is the
	// name of one that it sent to prove itself with, and that does not; "": none
	// (NODE-13).
	Headers  []header.Header
	Withheld string
}

// Session is the protocol of one downstream stream. It is pure, and not safe for
// concurrent use: its owner locks (the session comes first in the lock law).
type Session struct {
	config     *Config
	kind       Stream
	peer       Peer
	groups     Groups
	subscriber *fanout.Subscriber
	warmth     *Warmth

	// All of this dies with the stream.
	greeted bool // the first message is in
	node    *core.Node
	key     string
	ttl     bool    // the client knows TTLs (TTL-6)
	states  []state // in the order of ORDER-2
	carried bool    // a response was sent
	outage  outage
	clustersFirst
	counter  uint64
	verdicts uint64   // that the client may give on what was sent
	chunks   []chunk  // what is left of a response that was split
	untold   []Untold // what nobody will be told
	refusals []Refusal
}

// state is one type's part of a Session: deltaState or sotwState.
type state interface {
	base() *exchange
	due() bool
	collect(v fanout.View, push bool) part
	later(p *part)
	removedNow(p *part)
	takes() room
	brings(name string) bool
	holding(v fanout.View, name string) Holding
	warms(v fanout.View, endpoints string)
	move(to exchange, now time.Time)
}

func (x *exchange) base() *exchange { return x }

// New returns the protocol of a stream. wake is called when there is
// something to send; it must not block.
func New(c *Config, kind Stream, peer Peer, groups Groups, warmth *Warmth, wake func()) *Session {
	s := &Session{
		config: c, kind: kind, peer: peer, groups: groups, warmth: warmth,
		subscriber: fanout.NewSubscriber(wake),
	}
	s.subscriber.AsksForSources()
	return s
}

// Reconfigure has the Session go on with another configuration. What a type was asked for
// with stays as it was: ResendOnReconnect and NeverSynthesize count for types that the
// client asks for from now on, and Instance, Hop and ForwardHeaders for other streams.
func (s *Session) Reconfigure(c *Config) { s.config = c }

// Note is what a request told that is worth a log line or a counter.
type Note struct {
	Type cache.TypeURL
	Kind RequestKind
	// Nonce is of the response that was accepted or rejected, and Rejected what is known of
	// one that was rejected; nil: none was.
	Nonce    string
	Rejected *Rejection
	// After is the time from a response to its ACK, if this is one.
	After time.Duration
	// Charged: the request counts against the stream's rate.
	Charged bool
}

// RequestKind is a closed set, fit for a metric label.
type RequestKind string

const (
	InitialRequest   RequestKind = "initial"
	SubscribeRequest RequestKind = "subscribe"
	AckRequest       RequestKind = "ack"
	NackRequest      RequestKind = "nack"
	FetchRequest     RequestKind = "fetch" // a unary call
)

// RequestKinds are all there are.
var RequestKinds = []RequestKind{InitialRequest, SubscribeRequest, AckRequest, NackRequest, FetchRequest}

// DeltaRequest takes in a request of a Delta stream.
func (s *Session) DeltaRequest(req *discovery.DeltaDiscoveryRequest, now time.Time) (Note, *End) {
	note := Note{Kind: SubscribeRequest}
	t, end := s.greet(req.GetNode(), req.GetTypeUrl(), now)
	if end != nil {
		return note, end
	}
	located := located(req.GetResourceLocatorsSubscribe())
	if end := s.checkNames(req.GetResourceNamesSubscribe(), located); end != nil {
		return note, end
	}
	if end := s.checkVersions(req.GetInitialResourceVersions()); end != nil {
		return note, end
	}
	d, end := s.delta(t, now)
	if end != nil {
		return note, end
	}
	if end := s.claims(d, req); end != nil {
		return note, end
	}
	if !d.requested {
		s.comesWithoutClusters(d, req)
	}
	d.refused.add(located...)
	note = d.request(req, now)
	s.answer(&d.exchange, now)
	asks := len(req.GetResourceNamesSubscribe())+len(req.GetResourceNamesUnsubscribe())+len(located) > 0
	note.Charged = s.charge(req.GetResponseNonce(), asks)
	return note, nil
}

// SotWRequest takes in a request of a SotW stream.
func (s *Session) SotWRequest(req *discovery.DiscoveryRequest, now time.Time) (Note, *End) {
	note := Note{Kind: SubscribeRequest}
	t, end := s.greet(req.GetNode(), req.GetTypeUrl(), now)
	if end != nil {
		return note, end
	}
	located := located(req.GetResourceLocators())
	if end := s.checkNames(req.GetResourceNames(), located); end != nil {
		return note, end
	}
	w, end := s.sotw(t, now)
	if end != nil {
		return note, end
	}
	names := w.list(req.GetResourceNames())
	if end := s.checkRoom(w, w.claim(req, names)); end != nil {
		return note, end
	}
	w.refused.add(located...)
	warmed := uint64(0)
	if s.kind.Type != "" {
		warmed = s.warmth.deliveries(s.node.GetId())
	}
	note = w.request(req, names, warmed, now)
	s.answer(&w.exchange, now)
	note.Charged = s.charge(req.GetResponseNonce(), names.changed || len(located) > 0)
	return note, nil
}

// located are the names of resources that are asked for in a way that is not served (NAME-18).
func located(locators []*discovery.ResourceLocator) (names []string) {
	for _, l := range locators {
		names = append(names, l.GetName())
	}
	return names
}

// charge decides whether a request counts against the stream's rate. The verdict on
// a response does not, if it asks for nothing: we caused it, and a client that keeps
// up with fast changes does nothing wrong. There is one for each response, whatever
// its nonce is worth by now.
func (s *Session) charge(nonce string, asks bool) bool {
	if asks || nonce == "" || s.verdicts == 0 {
		return true
	}
	s.verdicts--
	return false
}

// maxNack bounds what is kept and logged of a client's message, in bytes.
const maxNack = 4 << 10

// NackMessage is what a client says of a response that it rejects.
func NackMessage(e *statuspb.Status) string {
	m := e.GetMessage()
	if len(m) > maxNack {
		m = strings.ToValidUTF8(m[:maxNack], "") + "..."
	}
	if m != "" {
		return m
	}
	return fmt.Sprintf("(no message, code %d)", e.GetCode())
}

func (s *Session) find(t cache.TypeURL) state {
	for _, st := range s.states {
		if st.base().url == t {
			return st
		}
	}
	return nil
}

func (s *Session) delta(t cache.TypeURL, now time.Time) (*deltaState, *End) {
	if st := s.find(t); st != nil {
		return st.(*deltaState), nil
	}
	x, end := s.exchange(t, now)
	if end != nil {
		return nil, end
	}
	d := &deltaState{
		exchange: x, resend: slices.Contains(s.config.ResendOnReconnect, t),
		quiet: len(s.peer.Via) == 0 && slices.Contains(s.config.NeverSynthesize, t), // a relay is always told
	}
	if clusters, ok := s.find(cache.Cluster).(*deltaState); ok && t == cache.Endpoint {
		d.needed, clusters.needed = clusters.needed, nil
	}
	s.add(d)
	return d, nil
}

func (s *Session) sotw(t cache.TypeURL, now time.Time) (*sotwState, *End) {
	if st := s.find(t); st != nil {
		return st.(*sotwState), nil
	}
	x, end := s.exchange(t, now)
	if end != nil {
		return nil, end
	}
	w := &sotwState{exchange: x}
	s.add(w)
	return w, nil
}

func (s *Session) exchange(t cache.TypeURL, now time.Time) (exchange, *End) {
	if len(s.states) == maxTypes {
		return exchange{}, &End{OverLimit, fmt.Sprintf("more than %d resource types on one stream", maxTypes)}
	}
	m, end := s.groups.Join(s.peer, s.node, t)
	var refused *refusal
	switch aggregated := s.kind.Type == ""; {
	case end != nil && !(m.Own && aggregated):
		return exchange{}, end
	case end != nil:
		m, refused = s.refuse(end, now)
	}
	x := s.exchangeOf(t, m)
	x.refusal = refused
	return x, nil
}

// exchangeOf begins a type that is served from a group.
func (s *Session) exchangeOf(t cache.TypeURL, m Membership) exchange {
	x := exchange{
		url: t, short: shortName(t), hub: m.Hub, leave: m.Leave, renew: m.Renew,
		sub: m.Hub.Subscribe(t, s.subscriber),
		own: m.Own, delta: s.kind.Delta, space: math.MaxInt,
		ends: !s.kind.Delta && isGRPC(s.node),
		ttl:  s.ttl,

		refers: s.kind.Type == "" && refersToClusters(t),
		most:   s.config.bounds().Unacked,
	}
	x.untold, x.sets = unseen, m.Hub.Properties(t).FullState && !s.kind.Delta
	return x
}

// inOrder compares types as ORDER-2 has them.
func inOrder(a, b state) int {
	x, y := a.base().url, b.base().url
	return cmp.Or(cmp.Compare(x.Rank(), y.Rank()), strings.Compare(string(x), string(y)))
}

func (s *Session) add(st state) {
	i, _ := slices.BinarySearchFunc(s.states, st, inOrder)
	s.states = slices.Insert(s.states, i, st)
	if st.base().url == cache.Cluster && s.kind.Type == "" {
		s.clusters = st
	}
}

// Close gives up all interest. The Session is not to be used after it.
func (s *Session) Close(now time.Time) {
	for _, st := range s.states {
		x := st.base()
		x.sub.Close(now)
		x.sub.Read(func(v fanout.View) { x.take(v.Marks()) })
		s.untell(x)
		x.leave()
	}
	if s.greeted {
		s.warmth.leave(s.node.GetId())
	}
	s.states, s.chunks = nil, nil
}
