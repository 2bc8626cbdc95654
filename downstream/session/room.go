package session

import (
	"fmt"
	"math"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/fanout"
)

// The names that a stream may have are bounded, and so are those that all clients have together (VALID-8). A Delta
// stream goes on beyond that: its newest names get errors, and nothing of them is remembered. A SotW request
// repeats all names each time, and a set that lacks some would remove them; so a SotW stream ends.

// Allowance is a stream's part of the names that all clients have together. It must not block.
type Allowance interface {
	// Take returns how many of n more names the stream may have. To make room, another client may have to go.
	Take(n int) int
	// TakeAll takes n more names, or says that the stream may not have all of them; then nobody has to go.
	TakeAll(n int) bool
	// Give takes n names back.
	Give(n int)
	// Room is how many names may be had although nobody goes.
	Room() int
}

// plenty is the Allowance if names are not bounded over all clients.
type plenty struct{}

func (plenty) Take(n int) int   { return n }
func (plenty) TakeAll(int) bool { return true }
func (plenty) Give(int)         {}
func (plenty) Room() int        { return Plenty }

// Plenty is the Room of an Allowance without a bound.
const Plenty = math.MaxInt

// maxExcess bounds the names whose errors wait to be sent, of one type.
const maxExcess = 1 << 20

// Within bounds the names of the stream by what all clients have together. It must be called before the first
// request.
func (s *Session) Within(a Allowance) { s.allowance = a }

// maxNames is how many names the stream may have.
func (s *Session) maxNames() int {
	if s.peer.Relay {
		return max(s.config.MaxNames, s.config.MaxRelayNames)
	}
	return s.config.MaxNames
}

// takes returns how many names a type keeps.
func (x *exchange) takes() int {
	n := x.refused.len() + len(x.unserved)
	if x.delta {
		n += len(x.denied)
	}
	x.sub.Read(func(v fanout.View) { n += len(v.Names()) })
	return n + len(x.touched.resend)
}

// admitNames returns the part of a Delta request for which there is room, and the names for which there is none: they are
// the last ones that the stream does not have. It counts exactly only if there may be too many, because that
// looks up names under the lock of the type. unserved says
// that it has others, too: locators, or names that it may not read.
func (s *Session) admitNames(d *deltaState, req *discovery.DeltaDiscoveryRequest, unserved bool) (_ *discovery.DeltaDiscoveryRequest, over []string, end *End) {
	kept := d.takes() + len(req.GetResourceLocatorsSubscribe())
	room, asked := s.maxNames()-(s.names-d.counted)-kept, len(req.GetResourceNamesSubscribe())
	switch {
	case room < 0 && unserved:
		return nil, nil, s.tooMany(s.maxNames() - room)
	case asked <= min(room, s.allowance.Room()):
		return req, nil, nil // settle takes them
	}
	come, leave := d.grows(req)
	fits := min(len(come), max(room+leave, 0))
	within := fits
	if more := fits - leave; more > 0 {
		got := s.allowance.Take(more)
		s.taken += got
		fits = leave + got
	}
	if over = come[fits:]; len(over) == 0 {
		return req, nil, nil
	}
	why := overStream
	if fits < within {
		why = overTotal
	}
	if d.excess.names.len() > min(s.maxNames(), maxExcess) { // the client does not read its errors
		return nil, nil, s.tooMany(s.maxNames() - room + len(come) - leave)
	}
	d.excess.add(why, over, &d.spelled)
	s.refusals = append(s.refusals, Refusal{Type: d.url, Reason: why.reason, Message: why.status.GetMessage(), Notice: NoticeErrors, Names: len(over)})
	return d.without(req, over), over, nil
}

// without returns a request without some names. What the client came with of them it keeps, unless the wildcard
// covers it.
func (d *deltaState) without(req *discovery.DeltaDiscoveryRequest, names []string) *discovery.DeltaDiscoveryRequest {
	drop := make(nameSet, len(names))
	for _, name := range names {
		drop.add(name)
	}
	own := altered(req, slices.DeleteFunc(slices.Clone(req.GetResourceNamesSubscribe()), drop.has), req.GetInitialResourceVersions())
	if !slices.Contains(own.ResourceNamesSubscribe, fanout.Wildcard) {
		for _, name := range names {
			delete(own.InitialResourceVersions, name)
		}
	}
	return own
}

// grows returns the names that the client would newly subscribe to with a request, in its order, and how many it
// would give up.
func (d *deltaState) grows(req *discovery.DeltaDiscoveryRequest) (come []string, leave int) {
	seen, left := make(nameSet), make(nameSet)
	given := make(nameSet, len(req.GetResourceNamesUnsubscribe()))
	d.sub.Read(func(v fanout.View) {
		for _, name := range req.GetResourceNamesUnsubscribe() {
			given.add(name)
			if subscribes(v, name) {
				left.add(name)
			}
		}
		for _, name := range req.GetResourceNamesSubscribe() {
			known := name == fanout.Wildcard || subscribes(v, name)
			if !known && !given.has(name) && !seen.add(name) { // subscribes come first (DOWN-DELTA-5)
				come = append(come, name)
			}
		}
	})
	return come, len(left)
}

// checkNumber refuses a SotW request with more names than the stream may have, or than there is room for, given how
// many names it keeps of the type.
func (s *Session) checkNumber(w *sotwState, names int) *End {
	if all := s.names - w.counted + names; all > s.maxNames() {
		return s.tooMany(all)
	}
	if more := s.names - w.counted + names - s.taken; more > 0 {
		if !s.allowance.TakeAll(more) {
			return &End{NamesFull, overTotal.status.GetMessage()}
		}
		s.taken += more
	}
	return nil
}

func (s *Session) tooMany(names int) *End {
	return &End{OverLimit, fmt.Sprintf("%d names on one stream exceed the limit of %d; raise downstream.max_names_per_stream", names, s.maxNames())}
}

// settle counts the names that the stream keeps of a type, once a request is taken in.
func (s *Session) settle(x *exchange, names int) {
	s.names += names - x.counted
	x.counted = names
	switch {
	case s.taken > s.names:
		s.allowance.Give(s.taken - s.names)
		s.taken = s.names
	case s.taken < s.names:
		s.taken += s.allowance.Take(s.names - s.taken)
	}
}

// excess are the names of a Delta stream for which there was no room, until that is said.
type excess struct {
	names pile[string] // as the client spells them
	why   *overLimit   // the last reason
}

// overLimit is why there is no room for a name.
type overLimit struct {
	reason Reason
	status *statuspb.Status
}

// The messages are short, since there may be very many.
var (
	overStream = &overLimit{OverLimit, &statuspb.Status{Code: 8, Message: "xds-relay: too many names on this stream; see downstream.max_names_per_stream"}}
	overTotal  = &overLimit{NamesFull, &statuspb.Status{Code: 8, Message: "xds-relay: too many names of all clients; see downstream.max_names"}}
)

func (e *excess) add(why *overLimit, names []string, s *spellings) {
	e.why = why
	for _, name := range names {
		e.names.add(s.of(name))
	}
}

// tell lists the errors of these names, or of the first of them: they are listed under the lock of the type.
func (e *excess) tell(p *plan) {
	const most = 1000
	names := e.names.take()
	now := min(len(names), most)
	for _, name := range names[:now] {
		p.fail(name, e.why.status)
	}
	e.names.give(names[now:])
}

// NamesRefused lists why names may be refused while their stream goes on.
func NamesRefused() []Reason { return []Reason{OverLimit, NamesFull, Forbidden} }
