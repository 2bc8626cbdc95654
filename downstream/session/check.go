package session

import (
	"fmt"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// invariants gathers which of them do not hold.
type invariants struct {
	of     string
	broken []string
}

func (i *invariants) must(holds bool, format string, a ...any) {
	if !holds {
		i.broken = append(i.broken, i.of+fmt.Sprintf(format, a...))
	}
}

// Check says what does not hold that has to hold whenever nobody is at work on the Session: after
// each request, and after each response. It looks at all that the client has asked for, under the
// locks of its types, and changes nothing.
func (s *Session) Check() []string {
	i := &invariants{}
	// Each type is there once, in the order of ORDER-2.
	i.must(slices.IsSortedFunc(s.states, inOrder), "types are not in order")
	for _, st := range s.states {
		// Clusters are those that others wait for.
		i.must((st == s.clusters) == (st.base().url == cache.Cluster && s.kind.Type == ""), "clusters are another type's")
		for _, w := range st.base().waitFor {
			i.must(w != st.base() && slices.ContainsFunc(s.states, func(o state) bool { return o.base() == w }), "%s waits for itself, or for what is over", st.base().short)
		}
	}
	// Nothing waits for Clusters where there are none.
	i.must(s.waitingSince.IsZero() || s.clusters != nil, "something waits for clusters, of which there are none")
	// Parts that are left are of one response.
	for n, c := range s.chunks {
		i.must(c.x == s.chunks[0].x && c.position == s.chunks[0].position, "part %d of %d is another response's", n, len(s.chunks))
	}
	for _, st := range s.states {
		i.of = st.base().short + ": "
		i.inFlight(st.base())
		st.base().sub.Read(func(v fanout.View) {
			for _, b := range v.Check() {
				i.must(false, "%s", b)
			}
			i.holdings(v, st)
			i.debts(v, st)
		})
	}
	return i.broken
}

// inFlight: the responses that await an ACK.
func (i *invariants) inFlight(x *exchange) {
	n := len(x.unacked)
	// No more are remembered than may be.
	i.must(n <= x.most, "%d responses are not acknowledged, at most %d are remembered", n, x.most)
	// They are in the order in which they were sent; pushes have waited since one of them, at the latest.
	for k, u := range x.unacked {
		i.must(u.nonce != "" && !u.at.Before(u.since), "%s was sent before it began to wait", u.nonce)
		if k > 0 {
			before := x.unacked[k-1]
			i.must(before.nonce != u.nonce && before.seq <= u.seq && !u.at.Before(before.at), "%s is not in order", u.nonce)
		}
	}
	// The last one is the last that was sent, and nonces have counted up to it.
	i.must(n == 0 || x.unacked[n-1].nonce == x.lastNonce && x.unacked[n-1].seq <= x.pushedAt, "the last response is not %s", x.lastNonce)
	// A rejection is of changes that were not accepted before.
	i.must(x.rejected == nil || x.rejected.From <= x.rejected.To, "rejected from %v to %v", x.rejected, x.rejected)
	// First answers that do not wait are noted only of what waits.
	i.must(len(x.awaited) == 0 || x.refers, "answers are awaited of a type that does not wait")
}

// holdings: what the client may hold.
func (i *invariants) holdings(v fanout.View, st state) {
	x := st.base()
	h := &x.holdings
	i.cursors(v, x)
	// What is written down by name is of a name, or of what names lead to; of a member, or of what may
	// be one; or owed. The next set ends what is written down of the last one.
	subscribed, _ := v.Wildcard()
	for e := range h.exact.all(false) {
		i.must(x.sets && subscribed || e.brought || x.mentions(v, e.name) || owes(st, e.name), "%q is written down, and nothing covers it", e.name)
	}
	i.led(v, x)
	i.exact(h)
}

// cursors: how far the client was told of the wildcard's set.
func (i *invariants) cursors(v fanout.View, x *exchange) {
	h, at := &x.holdings, v.Position()
	subscribed, _ := v.Wildcard()
	// No cursor is ahead of what there is.
	i.must(h.told <= at && (h.untold <= at || h.untold == unseen), "told up to %d, of what went up to %d, and it is %d", h.told, h.untold, at)
	i.must(x.renewedTo <= at && x.ackedTo <= at, "renewals told up to %d, accepted up to %d, and it is %d", x.renewedTo, x.ackedTo, at)
	// The wildcard has a part only while it is subscribed to.
	i.must(subscribed || len(h.ahead) == 0 && h.told == 0 && h.untold == unseen, "without the wildcard %d members are told of, up to %d and %d", len(h.ahead), h.told, h.untold)
	// What is told ahead is ahead of one of the cursors, of a member, and no further than there is.
	for name, a := range h.ahead {
		i.must(a.at > min(h.told, h.untold) && a.at <= at, "%q was told ahead at %d, behind %d and %d", name, a.at, h.told, h.untold)
	}
	// Plain: the cursors say all.
	if !subscribed || !h.plain() || len(v.Names()) > 0 {
		return
	}
	for c := range v.Set().Since(0) {
		version, some := h.of(v, c.Name)
		i.must(c.Resource == nil || (c.Seq <= h.told) == (some && version == c.Resource.Version), "%q changed at %d, and told up to %d", c.Name, c.Seq, h.told)
	}
}

// led: what names lead to.
func (i *invariants) led(v fanout.View, x *exchange) {
	// What a name was said to lead to, and has led to since, is written down, unless the client was told
	// otherwise by the resource's own name, or that it is too large.
	for _, id := range v.Names() {
		a, told, led := v.Answer(id), v.Told(id), v.LedTo(id)
		for n, r := range a.Resources() {
			_, _, exact := x.exact.find(r.Name).of()
			_, own := v.Lookup(r.Name)
			said := told.Copy() && a.Changed(n) <= told.At() && slices.Contains(led, r.Name)
			i.must(exact || own || !said || x.oversize(v, r) > 0, "%q is what a name leads to, and is not written down", r.Name)
		}
	}
}

// mentions: a resource is what the interest may cover.
func (x *exchange) mentions(v fanout.View, name string) bool {
	if _, own := v.Lookup(name); own || v.Leads(name) {
		return true
	}
	for _, id := range v.Names() {
		if slices.Contains(v.LedTo(id), name) {
			return true
		}
	}
	_, member := v.Set().Change(name)
	subscribed, synced := v.Wildcard()
	return subscribed && (member || !synced || min(x.told, x.untold) < v.Set().Forgotten()) // it may have been one
}

// owes: the client is to be told of a resource that nothing covers.
func owes(st state, name string) bool {
	x := st.base()
	_, released := x.released[name]
	return released || slices.Contains(x.left.items, name)
}

// exact: what is written down by name is counted, and so is what a client came with.
func (i *invariants) exact(h *holdings) {
	e := &h.exact
	left, noted, taken := 0, 0, 0
	for _, v := range e.table {
		if v.hash != 0 {
			taken++
		}
		if v.brought {
			left++
		}
		if v.noted {
			noted++
		}
		// It is spared something only while a response is made.
		i.must(!v.spared, "%q is spared what a response was to say", v.name)
	}
	i.must(left == e.left && noted == e.noted && taken == e.taken, "%d versions are left, %d noted, in %d places, and counted are %d, %d and %d", left, noted, taken, e.left, e.noted, e.taken)
	// A table is never full, or a search would not end.
	i.must(4*taken <= 3*len(e.table), "%d of %d places are taken", taken, len(e.table))
	// What is not judged is being judged.
	i.must(left == 0 || h.judging, "%d versions are left, and nobody judges them", left)
}

// debts: why the client may have to be told something.
func (i *invariants) debts(v fanout.View, st state) {
	x := st.base()
	subscribed, _ := v.Wildcard()
	// What is owed of a name goes with it: its ID may stand for another soon.
	for id, at := range x.forced {
		i.must(v.Has(id) && at <= v.Position(), "what is not subscribed to is forced, at %d", at)
	}
	for id := range x.erred {
		i.must(v.Has(id), "an error is to be over of what is not subscribed to")
	}
	// What was given up under the wildcard is told as a member; without it as what has gone.
	i.must(subscribed || x.left.len() == 0, "%q are left to the wildcard, which is not subscribed to", x.left.items)
	// A pile is no higher than it may be.
	for _, n := range []int{x.changed.len() - x.changed.limit, x.asked.len() - x.asked.limit, x.failed.len() - x.failed.limit, x.renewed.len() - x.renewed.limit, x.left.len() - x.left.limit} {
		i.must(n <= 0, "a pile is %d too high", n)
	}
	if d, ok := st.(*deltaState); ok {
		// The first answer to the wildcard is owed while it is subscribed to, and only then.
		i.must(subscribed || !d.wildcardAsked && !d.opening, "the wildcard is to be answered, and is not subscribed to")
		i.must(!d.opening || d.wildcardAsked, "the first answer is owed, and was not asked for")
	}
}
