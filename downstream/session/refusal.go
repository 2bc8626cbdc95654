package session

import (
	"fmt"
	"maps"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// A type that has a group of its own for this client is refused alone if the client may not join
// that group, or there is no room for it: its names are answered with the reason, a wildcard gets
// no answer, no set takes away what a client came with, and the stream's other types go on
// (NODE-14). Such a type is served by a Hub that belongs to the stream and has no upstream, so that
// its requests and responses follow the usual rules.

// refusal is the state of a type of the stream that is refused.
type refusal struct {
	reason Reason
	status *statuspb.Status
	rules  string // for the log
	// until is when the stream ends, so that its client asks for the group again; zero means never,
	// since the answer depends on the client alone.
	until  time.Time
	notice Notice
	said   Notice // what was reported last; NoticeNothing stays
}

// noGroup is the group name that logs show for a type that is refused.
const noGroup = "none"

// askAgainAfter is how long a stream goes on, and up to as long again, after a type was refused for want of room.
const askAgainAfter = time.Minute

// refuse makes a membership that refuses a type with the reason that the group gave.
func (s *Session) refuse(end *End, now time.Time) (Membership, *refusal) {
	r := &refusal{
		reason: end.Reason,
		status: refusedWith(end),
	}
	s.endsLater(r, now)
	return Membership{Hub: fanout.NewHub(fanout.Config{Name: noGroup, Types: s.config.Types}), Own: true, Leave: func() {}}, r
}

// turn takes in that a type is refused for another reason.
func (s *Session) turn(r *refusal, end *End, rules string, now time.Time) {
	if r.rules = rules; r.reason == end.Reason {
		return
	}
	r.reason, r.status, r.until = end.Reason, refusedWith(end), time.Time{}
	s.endsLater(r, now)
}

func refusedWith(end *End) *statuspb.Status {
	return &statuspb.Status{Code: int32(end.Code()), Message: "xds-relay: " + end.Message}
}

// endsLater sets when the stream ends because there was no room for a type. Clients that were refused at once come back one after the other.
func (s *Session) endsLater(r *refusal, now time.Time) {
	if r.reason != Overcrowded {
		return
	}
	r.until = now.Add(askAgainAfter)
	if s.config.Random != nil {
		r.until = r.until.Add(time.Duration(s.config.Random() * float64(askAgainAfter)))
	}
}

// answer answers a request for a type that is refused.
func (s *Session) answer(x *exchange, now time.Time) {
	r := x.refusal
	if r == nil {
		return
	}
	fanout.Refuse(x.group.Hub, r.status, now)
	x.sub.Read(func(v fanout.View) {
		brought := func(id cache.ID) bool { return v.Told(id).FromBefore() }
		keeps := x.sets && x.lastNonce == "" && slices.ContainsFunc(v.Names(), brought)
		if r.notice = NoticeErrors; keeps || wildcard(v) {
			r.notice = NoticeNothing
		}
	})
	if r.said == "" || r.said == NoticeErrors && r.notice == NoticeNothing {
		r.said = r.notice
		s.refusals = append(s.refusals, Refusal{Type: x.url, Reason: r.reason, Message: r.status.GetMessage(), Notice: r.said, Rules: r.rules})
	}
}

// askAgain ends a stream on which a type was refused for want of room, when that is due.
func (s *Session) askAgain(now time.Time) *End {
	for _, st := range s.states {
		x := st.base()
		if r := x.refusal; r != nil && !r.until.IsZero() && !r.until.After(now) {
			return &End{AskAgain, fmt.Sprintf("xds-relay: there was no room for %s; ask again", x.url.Name())}
		}
	}
	return nil
}

// succeed takes over, from the exchange of a type that was served by other rules, what the client may still
// refer to. If its positions were those of another Hub, they no longer count.
func (x *exchange) succeed(was *exchange) {
	for _, u := range was.unacked {
		u.seq, u.changes = 0, false
		x.unacked = append(x.unacked, u)
	}
	x.lastNonce, x.pushedAt, x.accepted, x.awaited = was.lastNonce, was.pushedAt, was.accepted, was.awaited
	x.refused, x.excess, x.unserved, x.spelled, x.counted = was.refused, was.excess, was.unserved, was.spelled, was.counted
	x.denies = was.denies
}

// move serves the type by other rules, and perhaps from another Hub, as if its client had just asked there for
// what it subscribes to (NODE-15).
func (d *deltaState) move(to exchange, now time.Time) {
	was := *d
	*d = deltaState{exchange: to, suppresses: was.suppresses, resend: was.resend, needed: was.needed}
	req, denied := d.enters(was.again(), false)
	d.sub.Explicit() // an empty list would mean the wildcard for some types
	d.request(req, now)
	d.reconnected, d.returning = was.reconnected, was.returning
	d.opening = was.opening && d.wildcardAsked
	d.spares = d.refusal != nil || was.spares && d.denied.has(fanout.Wildcard) // not for the wildcard that it never had
	d.succeed(&was.exchange)
	for _, name := range d.stillDenied(denied) {
		if !was.denied.has(name) {
			d.refused.add(name)
		}
	}
}

// again returns the request that a client would send if it came back.
func (d *deltaState) again() *discovery.DeltaDiscoveryRequest {
	versions := make(map[string]string)
	for e := range d.exact.all() {
		versions[e.name] = e.version
	}
	names := slices.Collect(maps.Keys(d.denied))
	d.sub.Read(func(v fanout.View) {
		if d.refusal == nil { // else nothing was sent
			d.listHeld(v, versions)
		}
		for _, id := range v.Names() {
			name := v.Name(id)
			names = append(names, name)
			if _, held := versions[name]; held && v.Told(id).Again() {
				versions[name] = "" // its cluster was sent (ORDER-4)
			}
		}
		if wildcard(v) {
			names = append(names, fanout.Wildcard)
		}
	})
	return &discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: names, InitialResourceVersions: versions}
}

// listHeld adds what the client holds because of its names and the wildcard.
func (d *deltaState) listHeld(v fanout.View, versions map[string]string) {
	list := func(name string) {
		if version, some := d.of(v, name); some {
			versions[name] = version
		}
	}
	for _, id := range v.Names() {
		list(v.Name(id))
	}
	if wildcard(v) {
		for c := range v.Set().Since(0) {
			list(c.Name)
		}
	}
}

// Refusal is news, for logs and metrics, of a type that one client is refused, or of which a SotW client asks for globs.
type Refusal struct {
	Type    cache.TypeURL
	Reason  Reason
	Message string
	Notice  Notice

	// Names is how many names were refused instead of the whole type: there are too many (VALID-8), or the
	// client may not read them (NODE-15). Repeated says that the stream had such news of the type before.
	Names    int
	Repeated bool
	// Rules says where the client's rules for the type stand, if it may not read something.
	Rules string

	// Only with the reason Glob: one of them, and whether it is the first that a client of this group
	// asks for (NAME-11).
	Glob, Group string
	First       bool
}

// Notice is what a client learns of a refusal. It is a closed set, fit for a metric label.
type Notice string

const (
	// NoticeErrors means that each of its names, or of its globs, gets an error.
	NoticeErrors Notice = "errors"
	// NoticeNothing means that it asks for a wildcard, which no error can answer, that the errors
	// would go with a set that lacks what it came with, or that its transport has none (V2-3).
	NoticeNothing Notice = "nothing"
)

// RefusalReasons lists why a type may be refused while its stream goes on.
func RefusalReasons() []Reason { return []Reason{Forbidden, Overcrowded, Nameless} }

// RefusedType is a kind of refusal, for counting.
type RefusedType struct {
	Type   string // its short name
	Reason Reason
	Notice Notice
}

// Refusals returns the news of types that are refused. It must be called after each request and
// after Next.
func (s *Session) Refusals() (news []Refusal) {
	news, s.refusals = s.refusals, nil
	if s.kind.V2 {
		for i := range news {
			news[i].Notice = NoticeNothing
		}
	}
	return news
}
