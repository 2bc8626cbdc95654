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

// Config is the part of the configuration that the server side needs.
type Config struct {
	// Instance is the relay's name in control_plane.identifier (DOWN-DELTA-19).
	Instance string
	// Hop is the relay's id among the relays that a stream has come through. No other process has
	// the same (NODE-11).
	Hop string
	// AckTimeout is how long pushes wait for an ACK, and removals for other types (DOWN-DELTA-15,
	// ORDER-2).
	AckTimeout time.Duration
	// ResendOnReconnect lists the types whose resources are resent to a returning client whatever
	// versions it brings (DOWN-DELTA-8).
	ResendOnReconnect []cache.TypeURL
	// NeverSynthesize lists the types for which a Delta client is sent the removal of a name only
	// if it has a copy (MISS-9).
	NeverSynthesize []cache.TypeURL
	// WarmingHold is how long changes of types that refer to Clusters wait at most for the
	// client's ACK of the Clusters; 0 means that they do not wait (ORDER-3).
	WarmingHold time.Duration
	// UnavailableAfter is how long a stream stays open while upstream does not answer (ERR-7).
	// Random yields numbers in [0, 1) that spread the ends of many streams; without it they end
	// at once.
	UnavailableAfter time.Duration
	Random           func() float64
	// ForwardHeaders are the headers of a client's stream that the upstream streams of its group
	// carry (NODE-13).
	ForwardHeaders []string
	// Types says what an empty first request means for a type that has no group (NODE-14).
	Types cache.Types
	// Relays are the identities of clients that are relays (NODE-11).
	Relays []string
	// MaxName bounds the length of a name in bytes, and MaxNames the number of a stream's names. A relay
	// may have MaxRelayNames, if these are more (VALID-8).
	MaxName, MaxNames, MaxRelayNames int
	// MaxResponse bounds a response in bytes; 0 means no bound (DOWN-DELTA-18, ERR-13).
	MaxResponse int
	// Bounds are for tests; nil means DefaultBounds.
	Bounds *Bounds
}

// Stream says what kind of stream a Session serves.
type Stream struct {
	Delta bool
	// Type is the one type of a per-type method; it is empty for ADS.
	Type cache.TypeURL
	// V2: the method is one of the v2 API, whose responses have no TTLs and no errors (V2-3).
	V2 bool
}

// Groups decides which group a stream's types belong to. It is asked once for each type of a
// stream.
type Groups interface {
	// Key returns everything in a node that the stream's groups, and what the client may read, depend on,
	// or why the stream has no group (NODE-3), or may not be opened (NODE-15). A nil node stands for a first
	// message without one.
	Key(client Peer, node *core.Node) (string, *End)
	// Join enters the group from which a type is served to the client (NODE-6). If the client may
	// not join, only Own is set in the Membership.
	Join(client Peer, node *core.Node, t cache.TypeURL) (Membership, *End)
}

// Membership is a stream's place in a group.
type Membership struct {
	Hub *fanout.Hub
	// Own says that the type has a group apart from that of the stream's other types (NODE-6).
	Own bool
	// Reads is what the client may read of the type; nil: everything (NODE-15).
	Reads Reads
	// Rules says where the rules stand that do not let the client read the type, for the log.
	Rules string
	// Leave is called when the stream no longer needs the group.
	Leave func()
	// Renew is called with a node whose dynamic parameters have changed; it may be nil (NODE-2).
	Renew func(*core.Node)
}

// Peer describes the client of a stream, as far as its connection identifies it.
type Peer struct {
	// Address is for logs and for people.
	Address string
	// Identity is what the client's TLS certificate proves, or "".
	Identity string
	// Principal is whom rules take the client for: its Identity; without one "unix:uid=N" of a process on a
	// Unix socket, or "anonymous" (NODE-15).
	Principal string
	// Holder is whose share the client's streams take of what all clients have together: its identity,
	// or its host without one (VALID-8).
	Holder string
	// Local says that the connection came over loopback or a Unix socket.
	Local bool
	// Relay says that the client may be a relay: it is listed as one, or on this host.
	Relay bool
	// Via lists the relays that the stream says it has come through, the nearest last (NODE-11).
	Via []string
	// End ends the stream, from anywhere and without waiting, such as when another client needs its group; nil: that
	// cannot be done.
	End func(*End)
	// Stream tells streams apart, by comparison: one stream joins a group for each of its types. nil: it
	// is not known to be that of another Peer.
	Stream any
	// Headers are the stream's headers that are forwarded upstream with its group. Withheld is
	// the name of a credential header that the client sent and that is not forwarded, or ""
	// (NODE-13).
	Headers  []header.Header
	Withheld string
}

// Way is the part of Via that goes upstream: anybody can claim to come through relays, and the
// stream to the control plane is everybody's (NODE-11).
func (p *Peer) Way() []string {
	if !p.Relay {
		return nil
	}
	return p.Via
}

// Session is the protocol of one downstream stream. It is pure, and not safe for concurrent use:
// its owner locks (the session comes first in the lock law).
type Session struct {
	config            *Config
	kind              Stream
	peer              Peer
	groups            Groups
	subscriber        *fanout.Subscriber
	clusterDeliveries *ClusterDeliveries
	nameBudget

	// The state below ends with the stream.
	node         *core.Node
	ofNode       *nodeDeliveries // of clusters, to this node; nil before the first message
	key          string
	states       []state // in the order of ORDER-2
	carried      bool    // a resource was sent
	outage       outage
	clusters     state     // Clusters on this stream, or nil; of those of two APIs the first that were asked for
	waitingSince time.Time // when the first change began to wait for Clusters; zero if none waits
	counter      uint64
	uncounted    uint64 // responses whose ACK or NACK has not been counted yet
	chunking
	untold   []Untold // traced sources that no response will carry
	refusals []Refusal
}

// nameBudget is the names that the stream keeps over all types, and the part of its Allowance that it has.
type nameBudget struct {
	allowance    Allowance
	names, taken int
}

// chunking is the rest of a response that goes out in parts (DOWN-DELTA-18).
type chunking struct {
	chunks  []*Response // the parts that are still to be sent
	chunked *candidate  // whose response that is; nil if there are none
}

// state is one type's part of a Session: deltaState or sotwState.
type state interface {
	base() *exchange
	due() bool
	collect(v fanout.View, push bool, p *plan)
	later(p *plan)
	removedNow(p *plan)
	claims(name string) bool
	returns() bool
	holding(v fanout.View, name string) (h Holding, clear bool)
}

func (x *exchange) base() *exchange { return x }

// New returns the protocol of a stream. wake is called when there may be something to send; it
// must not block.
func New(c *Config, kind Stream, peer Peer, groups Groups, deliveries *ClusterDeliveries, wake func()) *Session {
	s := &Session{
		config: c, kind: kind, peer: peer, groups: groups, clusterDeliveries: deliveries,
		subscriber: fanout.NewSubscriber(wake), nameBudget: nameBudget{allowance: plenty{}},
	}
	s.subscriber.AsksForSources, s.subscriber.Holder = true, peer.Holder
	return s
}

// Reconfigure replaces the configuration. ResendOnReconnect and NeverSynthesize apply to types
// that the client asks for from now on, and Instance, Hop and ForwardHeaders to new streams only.
func (s *Session) Reconfigure(c *Config) { s.config = c }

// Note is what a log line or a counter needs to know of a request.
type Note struct {
	Type cache.TypeURL
	Kind RequestKind
	// Nonce is that of the response that was accepted or rejected. Rejected describes the
	// rejection; nil means that there was none.
	Nonce    string
	Rejected *Rejection
	// After is the time from a response to its ACK, if the request is one.
	After time.Duration
	// Charged says that the request counts against the stream's rate.
	Charged bool
	// Unasked is for how many of the request's names upstream has to be asked, or there is no room.
	Unasked int
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

// RequestKinds lists all kinds.
var RequestKinds = []RequestKind{InitialRequest, SubscribeRequest, AckRequest, NackRequest, FetchRequest}

// DeltaRequest takes in a request of a Delta stream.
func (s *Session) DeltaRequest(req *discovery.DeltaDiscoveryRequest, now time.Time) (Note, *End) {
	note := Note{Kind: SubscribeRequest}
	located := located(req.GetResourceLocatorsSubscribe())
	st, end := s.admit(req, now, req.GetInitialResourceVersions(), req.GetResourceNamesSubscribe(), located)
	if end != nil {
		return note, end
	}
	d := st.(*deltaState)
	all := !d.requested && len(req.GetResourceNamesSubscribe()) == 0 && d.emptyIsAll()
	req, denied := d.enters(d.spells(req), all)
	req, over, end := s.admitNames(d, req, len(located)+len(denied) > 0)
	if end != nil {
		return note, end
	}
	if !d.requested {
		s.comesWithoutClusters(d, req)
	}
	if !d.requested && len(over)+len(denied) > 0 {
		d.sub.Explicit() // a request for nothing but these does not ask for everything
	}
	d.refused.add(located...)
	d.refused.add(d.stillDenied(denied)...)
	if !d.requested {
		d.spares = d.refusal != nil || d.denied.has(fanout.Wildcard)
	}
	note = d.request(req, now)
	note.Unasked += len(over)
	d.prune()
	s.settle(&d.exchange, d.takes())
	s.answer(&d.exchange, now)
	s.tellDenied(&d.exchange, len(denied))
	asks := len(req.GetResourceNamesSubscribe())+len(req.GetResourceNamesUnsubscribe())+len(located)+len(over)+len(denied) > 0
	note.Charged = s.charge(req.GetResponseNonce(), asks)
	return note, nil
}

// SotWRequest takes in a request of a SotW stream.
func (s *Session) SotWRequest(req *discovery.DiscoveryRequest, now time.Time) (Note, *End) {
	note := Note{Kind: SubscribeRequest}
	located := located(req.GetResourceLocators())
	st, end := s.admit(req, now, nil, req.GetResourceNames(), located)
	if end != nil {
		return note, end
	}
	w := st.(*sotwState)
	others, globs := w.spells(req.GetResourceNames())
	hadDenied, hadGlobs := len(w.denied) > 0, w.asksGlob()
	others, denied := w.enters(others)
	names, unserved := w.list(others), distinct(slices.Concat(located, globs, w.turnedAway()))
	if len(globs) > 0 || denied { // a request for nothing but these does not ask for everything
		firstGlobs, firstDenied := len(globs) > 0 && !hadGlobs, denied && !hadDenied
		names.Some, names.changed = true, names.changed || firstGlobs || firstDenied
	}
	kept := len(names.listed) + w.refused.len() + len(unserved)
	if names.Wildcard {
		kept--
	}
	if end := s.checkNumber(w, kept); end != nil {
		return note, end
	}
	asks := w.refuse(unserved) || names.changed
	delivered := uint64(0)
	if s.kind.Type != "" {
		delivered = s.ofNode.deliveries.Load()
	}
	note = w.request(req, names, delivered, now)
	s.settle(&w.exchange, kept)
	s.answer(&w.exchange, now)
	s.tellGlobs(w, globs)
	if asks {
		s.tellDenied(&w.exchange, len(w.denied))
	}
	note.Charged = s.charge(req.GetResponseNonce(), asks)
	return note, nil
}

// request is what both variants of a request have.
type request interface {
	GetNode() *core.Node
	GetTypeUrl() string
}

// admit checks what a request asks for and came with, and returns the state of its type.
func (s *Session) admit(req request, now time.Time, versions map[string]string, names ...[]string) (state, *End) {
	t, end := s.greet(req.GetNode(), req.GetTypeUrl(), now)
	if end == nil {
		end = s.checkNames(names...)
	}
	if end == nil {
		end = s.checkVersions(versions)
	}
	if end == nil && len(versions) > 0 {
		end = s.checkVersionCount(len(versions))
	}
	if end != nil {
		return nil, end
	}
	return s.stateOf(t, now)
}

// located returns the names of resources that are asked for by locator, which is not served
// (NAME-18).
func located(locators []*discovery.ResourceLocator) (names []string) {
	for _, l := range locators {
		names = append(names, l.GetName())
	}
	return names
}

// charge decides whether a request counts against the stream's rate. An ACK or NACK that asks for
// nothing does not: the relay caused it, and a client that keeps up with fast changes does
// nothing wrong. Each response pays for one such request, even if its nonce is stale by then.
func (s *Session) charge(nonce string, asks bool) bool {
	if asks || nonce == "" || s.uncounted == 0 {
		return true
	}
	s.uncounted--
	return false
}

// maxNack bounds how much of a client's error message is kept and logged, in bytes.
const maxNack = 4 << 10

// NackMessage is the client's reason for rejecting a response.
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

// serving returns the state of a type, or of the one that stands for it in the v2 API, or nil.
func (s *Session) serving(api cache.TypeURL) state {
	for _, st := range s.states {
		if st.base().api == api {
			return st
		}
	}
	return nil
}

// stateOf returns the state of a type, and makes it if the client has not asked for the type.
func (s *Session) stateOf(t cache.TypeURL, now time.Time) (state, *End) {
	if st := s.find(t); st != nil {
		return st, nil
	}
	x, end := s.exchange(t, now)
	if end != nil {
		return nil, end
	}
	var st state = &sotwState{exchange: x}
	if s.kind.Delta {
		d := &deltaState{
			exchange: x, resend: x.isOf(s.config.ResendOnReconnect),
			suppresses: len(s.peer.Via) == 0 && x.isOf(s.config.NeverSynthesize), // a relay is sent every removal
		}
		if clusters, ok := s.serving(cache.Cluster).(*deltaState); ok && x.api == cache.Endpoint {
			d.needed, clusters.needed = clusters.needed, nil
		}
		st = d
	}
	i, _ := slices.BinarySearchFunc(s.states, st, inOrder)
	s.states = slices.Insert(s.states, i, st)
	if holds := x.api == cache.Cluster && s.kind.Type == ""; holds && s.clusters == nil {
		s.clusters = st
	}
	return st, nil
}

func (s *Session) exchange(t cache.TypeURL, now time.Time) (exchange, *End) {
	if len(s.states) == maxTypes {
		return exchange{}, &End{OverLimit, fmt.Sprintf("more than %d resource types on one stream", maxTypes)}
	}
	if end := s.cannotName(t); end != nil {
		return s.refusedBy(end, t, Membership{}, now), nil
	}
	m, end := s.groups.Join(s.peer, s.node, t)
	switch {
	case end == nil:
		return s.exchangeOf(t, m), nil
	case !s.costsTypeOnly(m):
		return exchange{}, end
	}
	m.Reads = nil
	return s.refusedBy(end, t, m, now), nil
}

// cannotName returns why a type is refused to a SotW client: its resources have no names in their bodies, and the
// client does not take the wrapper that has them (DOWN-SOTW-15).
func (s *Session) cannotName(t cache.TypeURL) *End {
	if takesNames := s.kind.Delta || s.unwraps(); takesNames || !t.Unnamed() {
		return nil
	}
	return &End{Nameless, fmt.Sprintf("resources of type %s do not hold their names; use Delta, or list the client feature xds.config.resource-in-sotw", t.Name())}
}

// unwraps reports whether the client takes resources out of their wrappers on SotW. A v2 client knows none.
func (s *Session) unwraps() bool { return unwraps(s.node) && !s.kind.V2 }

// costsTypeOnly reports whether the stream goes on although a type's group refuses it (NODE-14).
func (s *Session) costsTypeOnly(m Membership) bool { return m.Own && s.kind.Type == "" }

// refusedBy returns the state of a type that a group has refused; of the Membership count the rules.
func (s *Session) refusedBy(end *End, t cache.TypeURL, of Membership, now time.Time) exchange {
	m, refused := s.refuse(end, now)
	m.Reads, refused.rules = of.Reads, of.Rules
	x := s.exchangeOf(t, m)
	x.refusal = refused
	return x
}

// exchangeOf returns the state of a type that is served from a group.
func (s *Session) exchangeOf(t cache.TypeURL, m Membership) exchange {
	t = t.Shared()
	return exchange{
		url: t, api: t.V3(), group: m, sub: m.Hub.Subscribe(t, s.subscriber), door: door{reads: m.Reads},
		clientKind: clientKind{delta: s.kind.Delta, ends: !s.kind.Delta && isGRPC(s.node), ttl: s.subscriber.TakesTTL, wraps: !s.kind.Delta && t.Unnamed()},
		frame:      frame{space: math.MaxInt},

		acks:        acks{most: s.config.bounds().Unacked},
		clusterWait: clusterWait{refers: s.kind.Type == "" && refersToClusters(t)},

		holdings: holdings{removedTo: unseen, sets: m.Hub.Properties(t).FullState && !s.kind.Delta},
	}
}

// inOrder compares types by the order of ORDER-2.
func inOrder(a, b state) int {
	x, y := a.base().url, b.base().url
	return cmp.Or(cmp.Compare(x.Rank(), y.Rank()), strings.Compare(string(x), string(y)))
}

// Close gives up all subscriptions. The Session must not be used after it.
func (s *Session) Close(now time.Time) {
	for _, st := range s.states {
		x := st.base()
		s.leave(x, now)
		for _, u := range x.unacked {
			u.source.Done(now)
		}
		x.group.Leave()
	}
	if n := len(s.chunks); n > 0 {
		s.chunks[n-1].Source.Done(now)
	}
	if s.ofNode != nil {
		s.clusterDeliveries.leave(s.node.GetId())
	}
	s.states, s.chunks, s.chunked = nil, nil, nil
	s.allowance.Give(s.taken)
	s.taken = 0
}
