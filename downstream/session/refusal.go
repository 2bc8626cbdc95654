package session

import (
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// A type that has a group of its own for this client, and that the client may not have or for
// which there is no room, is refused alone: its names are answered with the reason, a wildcard
// stays without an answer, and the stream's other types go on (NODE-14). Such a type is served
// by a Hub that belongs to the stream and has no upstream, so that its requests and
// responses follow the rules of any other.

// refusal is why a type of the stream is not served, and what becomes of that.
type refusal struct {
	reason Reason
	status *statuspb.Status
	// next is when the client asks for its group again; zero: it need not, since the answer
	// depends on the client alone.
	next time.Time
	mute bool // the client waits for a wildcard, and is not told
	// What people know: that it is refused, and that it was mute once.
	known, knownMute bool
}

// noGroup is the name, for people, of what serves a type that is refused.
const noGroup = "none"

// retryRoom is how long a client waits for room before it is looked for again.
const retryRoom = time.Minute

// refuse makes a membership that refuses a type with the reason that the group gave.
func (s *Session) refuse(end *End, now time.Time) (Membership, *refusal) {
	r := &refusal{
		reason: end.Reason,
		status: &statuspb.Status{Code: int32(end.Code()), Message: "xds-relay: " + end.Message},
	}
	r.put(now)
	hub := fanout.NewHub(fanout.Config{Name: noGroup, Types: s.config.Types})
	return Membership{Hub: hub, Own: true, Leave: func() {}}, r
}

// put sets when to ask for room again.
func (r *refusal) put(now time.Time) {
	if r.reason == Overcrowded {
		r.next = now.Add(retryRoom)
	}
}

// answer has a request for a type that is refused answered.
func (s *Session) answer(x *exchange, now time.Time) {
	r := x.refusal
	if r == nil {
		return
	}
	fanout.Refuse(x.hub, r.status, now)
	x.sub.Read(func(v fanout.View) { r.mute, _ = v.Wildcard() })
	if !r.known || r.mute && !r.knownMute {
		r.known, r.knownMute = true, r.knownMute || r.mute
		s.refusals = append(s.refusals, Refusal{Type: x.url, Reason: r.reason, Message: r.status.GetMessage(), Told: r.told()})
	}
}

// seekRoom asks for the groups of types for which there was no room, where that is due.
func (s *Session) seekRoom(now time.Time) {
	for _, st := range s.states {
		x := st.base()
		if r := x.refusal; r == nil || r.next.IsZero() || r.next.After(now) {
			continue
		}
		m, end := s.groups.Join(s.peer, s.node, x.url)
		if end != nil {
			x.refusal.put(now)
			continue
		}
		was := x.sub
		st.move(s.exchangeOf(x.url, m), now)
		was.Close(now)
		s.refusals = append(s.refusals, Refusal{Type: x.url, Told: Served})
	}
}

// succeed takes over, from the exchange of a type that was refused, what the client may still
// refer to. Positions are the other Hub's, and count no more.
func (x *exchange) succeed(was *exchange) {
	for _, u := range was.unacked {
		u.seq, u.changes = 0, false
		x.unacked = append(x.unacked, u)
	}
	x.lastNonce, x.pushedAt, x.accepted, x.refused = was.lastNonce, was.pushedAt, was.accepted, was.refused
}

// move has the type served from another Hub, as if its client had just asked there for what it
// subscribes to.
func (d *deltaState) move(to exchange, now time.Time) {
	was, req := *d, &discovery.DeltaDiscoveryRequest{InitialResourceVersions: d.versions()}
	req.ResourceNamesSubscribe, req.ResourceNamesUnsubscribe = was.interest()
	*d = deltaState{exchange: to, quiet: was.quiet, resend: was.resend, needed: was.needed}
	d.request(req, now)
	d.reconnected, d.returning = was.reconnected, was.returning
	d.opening = was.opening
	d.succeed(&was.exchange)
}

// interest is what the client subscribes to, in the words of a first request.
func (x *exchange) interest() (subscribe, unsubscribe []string) {
	wildcard := false
	x.sub.Read(func(v fanout.View) {
		wildcard, _ = v.Wildcard()
		for _, id := range v.Names() {
			subscribe = append(subscribe, v.Name(id))
		}
	})
	if wildcard {
		return append(subscribe, fanout.Wildcard), nil
	}
	return subscribe, []string{fanout.Wildcard} // which an empty list would mean for some types
}

func (s *sotwState) move(to exchange, now time.Time) {
	was := *s
	wildcard, held := false, make(map[string]bool)
	was.sub.Read(func(v fanout.View) {
		wildcard, _ = v.Wildcard()
		for _, id := range v.Names() {
			held[v.Name(id)] = v.Told(id).Copy()
		}
	})
	*s = sotwState{exchange: to}
	if len(was.names) == 0 && !wildcard { // given up, which an empty first request does not mean for some types
		s.sub.Replace(fanout.Names{Some: true, Wildcard: true}, now)
	}
	s.request(&discovery.DiscoveryRequest{ResourceNames: was.names, VersionInfo: was.came}, s.list(was.names), was.warmedAt, now)
	s.sub.Read(func(v fanout.View) {
		for _, id := range v.Names() {
			if !held[v.Name(id)] { // it was asked for later
				v.Tell(id, 0)
			}
		}
	})
	s.cameWildcard = s.cameWildcard && was.cameWildcard
	s.moved, s.version = was.moved, was.version
	s.succeed(&was.exchange)
}

// Refusal is news of a type that is refused to one client of those that have others, for
// people.
type Refusal struct {
	Type    cache.TypeURL
	Reason  Reason
	Message string
	Told    Told
}

// Told is what a client learns of a refusal. It is a closed set, fit for a metric label.
type Told string

const (
	// ToldErrors: each of its names gets an error.
	ToldErrors Told = "errors"
	// ToldNothing: it asks for all there is, and a wildcard cannot be answered with an
	// error.
	ToldNothing Told = "nothing"
	// Served: there is room for it after all.
	Served Told = "served"
)

// told is what the client learns of it.
func (r *refusal) told() Told {
	if r.mute {
		return ToldNothing
	}
	return ToldErrors
}

// RefusalReasons are why a type is refused while its stream goes on.
func RefusalReasons() []Reason { return []Reason{Forbidden, Overcrowded} }

// RefusedType is a kind of refusal, for counting.
type RefusedType struct {
	Type   string // its short name
	Reason Reason
	Told   Told
}

// Refusals hands over what is new of types that are refused. It is to be called after each
// request and after Next.
func (s *Session) Refusals() (news []Refusal) {
	news, s.refusals = s.refusals, nil
	return news
}
