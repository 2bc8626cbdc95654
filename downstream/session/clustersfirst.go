package session

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Changes of resources that refer to Clusters wait until the client has acknowledged the Clusters
// that it was sent (ORDER-3). An Envoy acknowledges Clusters once they have warmed, and some
// control planes wait for that ACK before they turn a route to a new Cluster. The relay
// acknowledges upstream at once, so it has to wait on their behalf.

// clusterWait is a type's part in that.
type clusterWait struct {
	// refers says that changes of the type wait for the stream's Clusters.
	refers      bool
	waitsForCDS bool    // they must wait now
	heldForCDS  bool    // some do
	awaited     nameSet // names newly asked for and not answered yet; these answers do not wait

	// The rest is for Clusters. returning: the client came with versions, it is not known yet what these
	// have become, and other types have not waited in vain for that. unanswered is the name without an
	// answer that was found last.
	returning  bool
	unanswered cache.ID
	// waitedInVain: other types have waited in vain for an ACK, and none has come since.
	waitedInVain bool
}

// refersToClusters reports whether resources of a type name Clusters, and break while one of
// those is missing.
func refersToClusters(t cache.TypeURL) bool {
	return slices.Contains([]cache.TypeURL{cache.Listener, cache.ScopedRoute, cache.Route, cache.VirtualHost}, t.V3())
}

// gains reports whether there are additions and changes to send, and not only first answers.
func gains(st state, v fanout.View) bool {
	x := st.base()
	changes := func(id cache.ID) bool { return gainsBy(st, v, id) }
	if x.members && whole(v) && gainsMembers(st, v) {
		return true
	}
	return x.gainsTouched(v) || slices.ContainsFunc(x.changed.items, changes)
}

// gainsTouched reports whether there are some among what is touched.
func (x *exchange) gainsTouched(v fanout.View) bool {
	for name := range x.touched.resend { // there may be very many
		if v.Resource(name) != nil {
			return true
		}
	}
	return slices.ContainsFunc(x.touched.names.items, func(name string) bool {
		r := v.Resource(name)
		return r != nil && !x.holds(v, r)
	})
}

// gainsMembers reports whether there are some in the wildcard's set.
func gainsMembers(st state, v fanout.View) bool {
	x := st.base()
	for c := range v.Set().Since(x.sentTo) {
		if c.Resource != nil && !x.holds(v, c.Resource) {
			return true
		}
	}
	return false
}

// offers reports whether there is something to send to a client that has just come back.
func offers(st state, v fanout.View) bool {
	x := st.base()
	offered := func(id cache.ID) bool {
		return v.Has(id) && slices.ContainsFunc(v.Answer(id).Resources(), func(r *cache.Resource) bool { return !x.holds(v, r) })
	}
	if members := x.members || x.wildcardAsked; members && whole(v) {
		return true
	}
	return slices.ContainsFunc(x.asked.items, offered) || slices.ContainsFunc(x.changed.items, offered)
}

// gainsBy reports whether a name leads to additions or changes. The first answer to a name counts
// only if the client came with another version of what the name leads to.
func gainsBy(st state, v fanout.View, id cache.ID) bool {
	x := st.base()
	return v.Has(id) && slices.ContainsFunc(v.Answer(id).Resources(), func(r *cache.Resource) bool {
		fromDisk := v.Restored(id) && st.claims(r.Name) // RECON-19
		first := x.awaited.has(v.Name(id)) && !x.claims(r.Name)
		return !fromDisk && !first && !x.holds(v, r)
	})
}

// holdsForCDS reports whether additions and changes of types that refer to Clusters must wait: the
// client has not acknowledged or rejected Clusters that it was sent, is to be sent other Clusters
// after that, or came with some and it is not known yet whether it is to be sent others.
func (s *Session) holdsForCDS() (wait bool) {
	if !s.holdsForClusters() {
		return false
	}
	c := s.clusters.base()
	c.returning = c.returning && s.clusters.returns()
	if owes := len(c.unacked) > 0 || c.returning; !owes || c.waitedInVain {
		return false
	}
	unsettled := c.returning || c.unjudged()
	c.sub.Read(func(v fanout.View) {
		asks := wildcard(v) || len(v.Names()) > 0
		wait = asks && (unsettled || gains(s.clusters, v))
	})
	return wait
}

// holdsForClusters reports whether changes of other types may have to wait for Clusters.
func (s *Session) holdsForClusters() bool {
	return s.clusters != nil && s.config.WarmingHold > 0 && !s.outage.hurries
}

// overtakes reports whether Clusters have changed since they were looked at for this response. A
// later change of another type may refer to them, and waits for the next look.
func (s *Session) overtakes() bool {
	return s.holdsForClusters() && s.clusters.base().sub.Changed()
}

// unjudged reports whether the client has yet to acknowledge or reject additions or changes that it was sent.
func (x *exchange) unjudged() bool {
	return slices.ContainsFunc(x.unacked, func(s sent) bool { return s.changes })
}

// succeeds reports whether Clusters come while others go. The old ones are used until the resources that
// refer to the new ones were sent, so they go after the ACK of the new ones, as removals that are new then.
func (s *Session) succeeds(sp *candidate) bool { return len(sp.changed) > 0 && s.succession(sp.state) }

// succession reports whether a type is Clusters, and other types may wait for the ACK of the new ones.
func (s *Session) succession(st state) bool {
	if st != s.clusters || s.config.WarmingHold == 0 || st.base().waitedInVain {
		return false
	}
	return slices.ContainsFunc(s.states, func(st state) bool { return st.base().refers })
}

// endWait ends the wait when it has lasted warming_hold. If the client owes an ACK of Clusters, no
// other wait begins until it acknowledges some. Nothing waits again for what it came with.
func (s *Session) endWait(now time.Time) {
	if s.waitingSince.IsZero() || now.Before(s.waitEnds()) {
		return
	}
	c := s.clusters.base()
	c.waitedInVain, c.returning = c.waitedInVain || len(c.unacked) > 0, false
}

func (s *Session) waitEnds() time.Time { return s.waitingSince.Add(s.config.WarmingHold) }

// referrersDue reports whether there may be something to send of a type that refers to Clusters.
func (s *Session) referrersDue() bool {
	return slices.ContainsFunc(s.states, func(st state) bool { return st.base().refers && st.due() })
}

// noteWait notes when the first change began to wait, and when none waits any more.
func (s *Session) noteWait(now time.Time) {
	switch {
	case !slices.ContainsFunc(s.states, func(st state) bool { return st.base().heldForCDS && st.due() }):
		s.waitingSince = time.Time{}
	case s.waitingSince.IsZero():
		s.waitingSince = now
	}
}

// returns reports whether it is still unknown what has become of what the client came with.
func (d *deltaState) returns() bool { return (d.reconciling() || d.opening) && !d.touched.withheld }

// returns reports whether the client was sent nothing yet, and may hold what it came with.
func (s *sotwState) returns() bool { return s.came != "" && s.lastNonce == "" && s.refusal == nil }

// anyOf reports whether such holds for some name. Mostly it is the name for which it held last.
func (x *exchange) anyOf(v fanout.View, such func(cache.ID) bool) bool {
	if v.Has(x.unanswered) && such(x.unanswered) {
		return true
	}
	i := slices.IndexFunc(v.Names(), such)
	if i >= 0 {
		x.unanswered = v.Names()[i]
	}
	return i >= 0
}

// await notes a name that is newly asked for. Its answer does not wait for Clusters.
func (x *exchange) await(name string) {
	if x.refers {
		put(&x.awaited, name, struct{}{})
	}
}

// answered notes that the client was sent the answer to a name, or has given it up.
func (x *exchange) answered(name string) { drop(&x.awaited, name) }

// holdForCDS keeps back the names for which the client would be sent something new if it must wait,
// and returns the others: names that are gone, and first answers. The answer to a name that was
// asked for is new if the name has an unsent change, or the client came with another version.
func holdForCDS(st state, v fanout.View, ids []cache.ID, asked bool) []cache.ID {
	x := st.base()
	if !x.waitsForCDS {
		return ids
	}
	changed := distinct(slices.Clone(x.changed.items))
	return slices.DeleteFunc(ids, func(id cache.ID) bool {
		_, untold := slices.BinarySearch(changed, id)
		if answer := asked && !untold; answer || !gainsBy(st, v, id) {
			return false
		}
		if asked {
			x.failed.add(id) // H-27
			x.asked.add(id)
		}
		x.changed.add(id) // it stays a change, whatever is asked for meanwhile
		x.heldForCDS = true
		return true
	})
}
