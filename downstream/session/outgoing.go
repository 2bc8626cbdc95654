package session

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Clusters that go while others come stay in a SotW client's set until the resources that
// referred to them have been turned to the new ones (ORDER-2): the set with the new Clusters
// still lists the old ones, and the set after its ACK does not. Delta has removals for that
// (succeeds).

// removalWait is since when removals wait for changes of other types (ORDER-2); zero: none do.
type removalWait struct {
	waitSince  time.Time
	staysSince time.Time // since when a full-state set lists what is gone
}

// turn says how the next set treats Clusters that go.
type turn struct {
	keeps bool          // they stay: the stream has a type that refers to Clusters
	waits bool          // something that refers to Clusters waits
	most  time.Duration // for how long they stay; 0 if the type is not Clusters, or nothing stays
	now   time.Time
}

// turns returns the turn of a type's set.
func (s *Session) turns(st state, now time.Time) turn {
	if st != s.clusters || s.config.WarmingHold == 0 {
		return turn{}
	}
	return turn{s.succession(st), s.referrersDue(), s.config.AckTimeout, now}
}

// staying returns what the new set lists although it has left. What stayed in the last set stays
// on only while something waits or that set is not acknowledged; if no other comes, so does the rest.
func (t *turn) staying(stayed, left []fanout.Leaving, acked, comes bool) []fanout.Leaving {
	over := acked && !t.waits // of what stayed in the last set
	if !t.keeps || over && !comes {
		return nil
	}
	if over {
		stayed = nil
	}
	return slices.DeleteFunc(append(stayed, left...), func(l fanout.Leaving) bool { return !t.now.Before(l.At.Add(t.most)) })
}

// depart decides what stays of the last set, and whether the new set only removes (shrunk). The
// error of a name whose resource stays, or waits to be removed, goes with the first set that does
// not list it (MISS-6).
func (s *sotwState) depart(v fanout.View, p *plan, shrunk, acked bool) {
	var stayed, left []fanout.Leaving
	if s.turn.most > 0 {
		v.Departed().Remember(s.turn.most)
		stayed, left = v.Departed().Still(s.sentTo, s.stays), v.Departed().Since(s.sentTo, s.stays)
	}
	ids, others := errorsOf(v, p.errors, slices.Concat(stayed, left))
	if shrunk && len(others)+len(p.unavailable) == 0 {
		p.shrunk, p.removedIDs = true, ids
		return
	}
	s.stays, s.staysSince = s.turn.staying(stayed, left, acked, len(p.changed) > 0), time.Time{}
	if len(s.stays) == 0 {
		return
	}
	ids, p.errors = errorsOf(v, p.errors, s.stays)
	s.failed.add(ids...)
	s.staysSince, s.shrink = s.stays[0].At, true
	p.news = v.Departed().Among(p.resources, s.stays)
	p.resources, p.version = p.news.Resources, p.news.Version
	s.stays = p.news.Leaving // one list is shared by all clients that are sent the same
}

// errorsOf separates the errors of names that led to what is leaving, which it returns as IDs,
// from the others.
func errorsOf(v fanout.View, errors []resourceErr, leaving []fanout.Leaving) (ids []cache.ID, others []resourceErr) {
	if len(errors) == 0 || len(leaving) == 0 {
		return nil, errors
	}
	names := leavingNames(leaving)
	for _, e := range errors {
		id, subscribed := v.Lookup(e.name)
		if names.has(e.name) && subscribed && e.status != noLocate {
			ids = append(ids, id)
		} else {
			others = append(others, e)
		}
	}
	return ids, others
}

// leavingNames returns the names that led to what is leaving.
func leavingNames(leaving []fanout.Leaving) nameSet {
	names := make(nameSet, len(leaving))
	for _, l := range leaving {
		names.add(l.Name)
		for _, alias := range l.Aliases {
			names.add(alias)
		}
	}
	return names
}
