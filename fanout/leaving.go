package fanout

import (
	"math"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// A Cluster that was replaced or removed is remembered for a while: the sets of clients that have
// it go on listing it until the resources that refer to it have changed (ORDER-2). A client has
// it if it was last sent the type at a position between the resource's last change and the next.

// Leaving is a resource that was replaced or removed.
type Leaving struct {
	*cache.Resource
	from, to cache.Seq // it was in force from one change to the other
	At       time.Time // the time of the latter
	member   bool      // it was a member of the wildcard's set
}

// leaving are the remembered resources of one type.
type leaving struct {
	x    *index
	keep time.Duration // how long they are remembered; 0: not at all
	now  time.Time     // the time of the change that is being applied
	all  []Leaving     // in order of their leaving, at most Bounds.Leaving
	// turns are the changes of the Update that is being applied (UP-28).
	turns recorder
	// lost is the last change by which a resource left without being in all.
	lost cache.Seq
}

// deadline returns when to call forget; zero if nothing is remembered.
func (l *leaving) deadline() time.Time {
	if len(l.all) == 0 {
		return time.Time{}
	}
	return l.all[0].At.Add(l.keep)
}

// forget drops the resources that left long enough ago, and the first ones if there are more than
// the bound.
func (l *leaving) forget() {
	n := max(0, len(l.all)-l.x.hub.config.Bounds.Leaving)
	for n < len(l.all) && !l.now.Before(l.all[n].At.Add(l.keep)) {
		n++
	}
	if n == 0 {
		return
	}
	l.lost = max(l.lost, l.all[n-1].to)
	clear(l.all[:n]) // the bodies are not kept
	if l.all = l.all[n:]; len(l.all) == 0 {
		l.all = nil
	}
	l.x.wildcard.board.leaving = nil
}

// changes notes that a name is about to bear another resource, or none: it updates the digests of
// clients, and remembers the old resource unless it has a TTL.
func (l *leaving) changes(t *cache.Table, id cache.ID, before, now *cache.Resource) {
	if t == &l.x.named.Table {
		l.x.interest.updateDigests(id, before, now)
	}
	if l.turns.changes(before, now); before == nil {
		return
	}
	l.x.former(t, before)
	if l.keep == 0 || t.Expires(before.Name) {
		l.lost = l.x.latest
		return
	}
	l.all = append(l.all, Leaving{before, t.Seq(id), l.x.latest, l.now, t == &l.x.wildcard.Table})
	l.forget()
}

// Departed is the part of a View about resources that were replaced or removed.
type Departed View

// Departed returns the part of the View about resources that were replaced or removed.
func (v View) Departed() Departed { return Departed(v) }

// Remember sets for how long resources that leave from now on are remembered.
func (v Departed) Remember(keep time.Duration) { v.x.leaving.keep = keep }

// Since returns the resources that have left since the client was last sent the type, at position
// told: the client has them, and its interest does not lead to them any more.
//
// Names in before are left out, since the client was sent them as leaving already; the other lane
// may have lost them since. If the client has names, and not everything that has left since told is
// remembered, members of the wildcard's set are left out, too: the resource that its names led to
// may be the one that is forgotten, and only that one was sent (WILD-16).
func (v Departed) Since(told cache.Seq, before []Leaving) (all []Leaving) {
	at := make(map[string]int)
	for _, l := range before {
		at[l.Name] = -1
	}
	for _, l := range slices.Backward(v.x.leaving.all) {
		if l.to <= told {
			break
		}
		if !v.leaves(l, told, l.to) || l.member && v.forgot(told) {
			continue
		}
		if i, again := at[l.Name]; !again {
			at[l.Name], all = len(all), append(all, l)
		} else if i >= 0 && all[i].member { // its names led to the other one (WILD-16)
			all[i] = l
		}
	}
	slices.Reverse(all)
	return all
}

// forgot reports whether the resource that one of the client's names led to may have left since told, and be forgotten.
func (v Departed) forgot(told cache.Seq) bool {
	return len(v.s.names.ids) > 0 && told < v.x.leaving.lost
}

// Still returns those of all, which the client was sent as leaving, that are still leaving.
func (v Departed) Still(told cache.Seq, all []Leaving) []Leaving {
	return slices.DeleteFunc(slices.Clone(all), func(l Leaving) bool { return !v.leaves(l, told, math.MaxUint64) })
}

// leaves reports whether the client was sent a resource while it was in force, has not given it up
// since, and has no other of that name.
func (v Departed) leaves(l Leaving, told, before cache.Seq) bool {
	had := func(at cache.Seq) bool { return l.from <= at && at < before }
	has := l.member && v.s.wildcard && had(told)
	for name := range l.Names() {
		if id, ok := View(v).Lookup(name); ok {
			t := v.Told(id)
			has = has || t.Copy() && had(t.At())
		}
	}
	return has && View(v).Resource(l.Name) == nil
}

// Among returns a client's whole set with the leaving resources. Clients that are sent the same
// share one News.
func (v Departed) Among(set []*cache.Resource, leaving []Leaving) *News {
	b, shared := &v.x.wildcard.board, len(v.s.names.ids) == 0
	for _, n := range b.leaving {
		if shared && slices.Equal(n.Leaving, leaving) {
			return n
		}
	}
	n := &News{Resources: slices.Clone(set), Leaving: leaving}
	for _, l := range leaving {
		n.Resources = append(n.Resources, l.Resource)
	}
	var digest cache.Digest
	for _, r := range n.Resources {
		digest.Add(r)
	}
	n.Resources, n.Version = slices.Clip(n.Resources), digest.String()
	if shared && len(b.leaving) < v.x.hub.config.Bounds.News {
		b.leaving = append(b.leaving, n)
	}
	return n
}
