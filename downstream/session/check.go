package session

import (
	"fmt"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// invariants gathers the invariants that do not hold.
type invariants struct {
	of     string
	broken []string
}

func (i *invariants) must(holds bool, format string, a ...any) {
	if !holds {
		i.broken = append(i.broken, i.of+fmt.Sprintf(format, a...))
	}
}

// Check returns the invariants that do not hold. They must hold after each request and after each
// response, when no call is under way. Check looks at everything that the client has asked for,
// under the locks of its types, and changes nothing.
func (s *Session) Check() []string {
	i := &invariants{}
	i.must(slices.IsSortedFunc(s.states, inOrder), "types are not in order (ORDER-2)")
	for _, st := range s.states {
		isClusters := st.base().api == cache.Cluster && s.kind.Type == ""
		i.must(isClusters || st != s.clusters, "clusters are another type's")
		i.must(!isClusters || s.clusters != nil, "nobody waits for clusters")
		i.must(st.base().waitSince.IsZero() || !st.base().url.ReplacesAtOnce(), "removals of %s wait for other types", st.base().url.Name())
	}
	i.must(s.waitingSince.IsZero() || s.clusters != nil, "something waits for clusters, of which there are none")
	i.must((s.chunked != nil) == (len(s.chunks) > 0), "%d parts are left of a response, which is known: %v", len(s.chunks), s.chunked != nil)
	for n, r := range s.chunks {
		i.must(s.chunked != nil && s.chunked.base().url == r.Type && s.chunked.version == r.Version, "part %d of %d is another response's", n, len(s.chunks))
	}
	for _, st := range s.states {
		i.of = st.base().url.Name() + ": "
		i.inFlight(st.base())
		st.base().sub.Read(func(v fanout.View) {
			for _, b := range v.Check() {
				i.must(false, "%s", b)
			}
			i.door(v, st.base())
			i.holdings(v, st)
			i.whole(v, st)
			i.toSend(v, st)
		})
	}
	return i.broken
}

// door checks that the client subscribes to nothing that it may not read (NODE-15).
func (i *invariants) door(v fanout.View, x *exchange) {
	for _, id := range v.Names() {
		i.must(x.allows(v.Name(id)), "%q is subscribed to, and may not be read", v.Name(id))
	}
	i.must(!wildcard(v) || x.allows(fanout.Wildcard), "the wildcard is subscribed to, and may not be read")
	for name := range x.denied {
		i.must(!x.allows(name), "%q is denied, and may be read", name)
	}
}

// inFlight checks the responses that await an ACK.
func (i *invariants) inFlight(x *exchange) {
	n := len(x.unacked)
	i.must(n <= x.most, "%d responses are not acknowledged, at most %d are remembered", n, x.most)
	for k, u := range x.unacked {
		i.must(u.nonce != "" && !u.at.Before(u.since), "%s was sent before it began to wait", u.nonce)
		if k > 0 {
			before := x.unacked[k-1]
			i.must(before.nonce != u.nonce, "%s was sent twice", u.nonce)
			i.must(before.seq <= u.seq, "%s is not in order", u.nonce)
			i.must(!u.at.Before(before.at), "%s was sent before the one before it", u.nonce)
		}
	}
	i.must(n == 0 || x.unacked[n-1].nonce == x.lastNonce && x.unacked[n-1].seq <= x.pushedAt, "the last response is not %s", x.lastNonce)
	// A rejection covers changes that were not accepted before.
	i.must(x.rejected == nil || x.rejected.From <= x.rejected.To, "rejected from %v to %v", x.rejected, x.rejected)
	i.must(len(x.awaited) == 0 || x.refers, "answers are awaited of a type that does not wait")
}

// holdings checks what the client may hold.
func (i *invariants) holdings(v fanout.View, st state) {
	x := st.base()
	i.cursors(v, x)
	// Each resource that an exact client holds is wanted, or looked at when all names have answers and the set is whole.
	looks := st.due() || x.sub.Changed()
	unanswered := slices.ContainsFunc(v.Names(), v.Unanswered) || wildcard(v) && !whole(v)
	for e := range x.exact.all() {
		looked := unanswered || x.touched.open || looks
		waits := e.claimed || looked
		wanted := x.wants(v, e.name) || x.mayCover(v, e.name)
		i.must(waits || wanted || x.sets, "%q is held, and nobody wants it", e.name)
	}
	i.exact(x.exact)
}

// cursors checks the positions up to which the client was sent changes.
func (i *invariants) cursors(v fanout.View, x *exchange) {
	h, at := &x.holdings, v.Position()
	subscribed, _ := v.Wildcard()
	i.must(h.sentTo <= at && (h.removedTo <= at || h.removedTo == unseen), "changes were sent up to %d and removals up to %d, and the Hub is at %d", h.sentTo, h.removedTo, at)
	i.must(x.renewedTo <= at, "renewals were sent up to %d, and the Hub is at %d", x.renewedTo, at)
	i.must(x.ackedTo <= at, "the client accepted up to %d, and the Hub is at %d", x.ackedTo, at)
	nothing := h.sentTo == 0 && h.removedTo == unseen
	i.must(subscribed || nothing, "without the wildcard changes were sent up to %d and removals up to %d", h.sentTo, h.removedTo)
	i.must(h.exact == nil || h.removedTo == unseen, "an exact client was sent removals up to %d", h.removedTo)
	i.must(h.exact != nil || !subscribed || len(v.Names()) == 0, "a plain client has names and the wildcard")
	// If the client is plain, the positions say everything.
	if h.exact != nil || !h.inStep() || !subscribed {
		return
	}
	for c := range v.Set().Since(0) {
		version, some := h.of(v, c.Name)
		i.must(c.Resource == nil || (c.Seq <= h.sentTo) == (some && version == c.Resource.Version), "%q changed at %d, and changes were sent up to %d", c.Name, c.Seq, h.sentTo)
	}
}

// whole checks that a client which has accepted the whole set has nothing else, name by name.
func (i *invariants) whole(v fanout.View, st state) {
	if !hasWhole(st, v) {
		return
	}
	members := make(nameSet)
	for c := range v.Set().Since(0) {
		if c.Resource != nil {
			members.add(c.Name)
		}
	}
	for _, name := range distinct(st.base().mention(v, nil)) {
		n, some := describeName(st, v, name)
		i.must(some == members.has(name), "%q is in the set: %v, and the client has to do with it: %v", name, members.has(name), some)
		accepted := n.Step == StepSynced && n.Sent == n.Now && n.Sent != ""
		i.must(!some || accepted && !n.Asked, "the client has accepted the whole set, and %q is %+v", name, n)
	}
}

// exact checks the counts of entries, and of what the client came with.
func (i *invariants) exact(e *exact) {
	if e == nil {
		return
	}
	claims, count, taken := 0, 0, 0
	for _, v := range e.table {
		if v.hash != 0 {
			taken++
		}
		if v.held {
			count++
		}
		if v.claimed {
			claims++
		}
	}
	i.must(claims == e.claims, "%d versions are claimed, and counted are %d", claims, e.claims)
	i.must(count == e.count, "%d resources are held, and counted are %d", count, e.count)
	i.must(taken == e.taken, "%d places are taken, and counted are %d", taken, e.taken)
	// A table is never full, since a search would not end.
	i.must(4*taken <= 3*len(e.table), "%d of %d places are taken", taken, len(e.table))
}

// toSend checks the reasons to send something.
func (i *invariants) toSend(v fanout.View, st state) {
	x := st.base()
	subscribed, _ := v.Wildcard()
	// What is noted of a name ends with its subscription: its ID may be reused soon.
	for id := range x.erred {
		i.must(v.Has(id), "an error is to be over of what is not subscribed to")
	}
	for _, n := range []int{x.changed.len() - x.changed.limit, x.asked.len() - x.asked.limit, x.failed.len() - x.failed.limit, x.renewed.len() - x.renewed.limit} {
		i.must(n <= 0, "a pile is %d too high", n)
	}
	if d, ok := st.(*deltaState); ok {
		i.must(subscribed || !d.wildcardAsked && !d.opening, "the wildcard is to be answered, and is not subscribed to")
		i.must(!d.opening || d.wildcardAsked, "the first answer is owed, and was not asked for")
	}
}
