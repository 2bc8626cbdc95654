package fanout

import (
	"math"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// What has left the Tables is remembered for a while where clients may still need it: sets of
// Clusters go on listing it until what refers to it has been turned (ORDER-2). A client has
// had it that was told of the type at a position between its last change and the next one.

// Leaving is a resource that is not what there is any more.
type Leaving struct {
	*cache.Resource
	from, to cache.Seq // it was what there is from one change to another
	At       time.Time // of the latter
	member   bool      // of the wildcard's set
}

// leaving is what is remembered of one type.
type leaving struct {
	keep time.Duration // for how long; 0: nobody needs it
	now  time.Time     // of what is being applied
	all  []Leaving     // in order of their leaving
}

// deadline is when to call forgetLeft; zero: nothing is remembered.
func (l *leaving) deadline() time.Time {
	if len(l.all) == 0 {
		return time.Time{}
	}
	return l.all[0].At.Add(l.keep)
}

// forgetLeft forgets what left long enough ago.
func (x *index) forgetLeft() {
	l := &x.leaving
	over := func(r Leaving) bool { return !l.now.Before(r.At.Add(l.keep)) }
	if len(l.all) > 0 && over(l.all[0]) {
		l.all, x.board.leaving = slices.DeleteFunc(l.all, over), nil
	}
}

// changes takes in that a name is about to bear another resource, or none. What expires by itself
// or is not to be kept is not remembered.
func (x *index) changes(t *cache.Table, id cache.ID, before, now *cache.Resource) {
	if t == &x.named {
		x.sums(id, before, now)
	}
	if x.leaving.keep == 0 || before == nil || before.DoNotCache {
		return
	}
	if ends, _, _ := t.Ends(id); ends.IsZero() {
		x.forgetLeft()
		x.leaving.all = append(x.leaving.all, Leaving{before, t.Seq(id), x.latest, x.leaving.now, t == &x.wildcard})
	}
}

// Remember says for how long what leaves the type from now on may be asked for by Leaving.
func (v View) Remember(keep time.Duration) { v.x.leaving.keep = keep }

// Remembers: what leaves a type is remembered for a while, so that there is something to do
// when that has passed.
func (h *Hub) Remembers(t cache.TypeURL) (remembers bool) {
	h.look(t, func(x *index) { remembers = x.leaving.keep > 0 })
	return remembers
}

// Leaving is what has left since the client was told of the type, up to a position: what it has
// and its interest does not lead to any more.
//
// What it was sent as leaving before is not among it: the other lane may have lost that since.
func (v View) Leaving(told cache.Seq, before []Leaving) (all []Leaving) {
	at := make(map[string]int)
	for _, l := range before {
		at[l.Name] = -1
	}
	for _, l := range slices.Backward(v.x.leaving.all) {
		if l.to <= told {
			break
		}
		if !v.leaves(l, told, l.to) {
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

// StillLeaving are those of what the client was sent as leaving of which that still holds.
func (v View) StillLeaving(told cache.Seq, all []Leaving) []Leaving {
	return slices.DeleteFunc(slices.Clone(all), func(l Leaving) bool { return !v.leaves(l, told, math.MaxUint64) })
}

// leaves: the client was told of a resource when that was what there is, has not given it up
// since, and is led to no other of its name.
func (v View) leaves(l Leaving, told, before cache.Seq) bool {
	had := func(at cache.Seq) bool { return l.from <= at && at < before }
	has := l.member && v.s.wildcard && had(told)
	if len(v.s.ids) > 0 {
		for name := range names(l.Resource) {
			if id, ok := v.Lookup(name); ok {
				t := v.Told(id)
				has = has || t.Copy() && had(t.At())
			}
		}
	}
	return has && v.Resource(l.Name) == nil && !v.lent(v.Member(l.Name))
}

// WithLeaving is a client's whole set and what is leaving. All who are sent the same share it.
func (v View) WithLeaving(set []*cache.Resource, leaving []Leaving) *News {
	b, shared := &v.x.board, len(v.s.ids) == 0 && !v.Husks()
	for _, n := range b.leaving {
		if shared && slices.Equal(n.leaving, leaving) {
			return n
		}
	}
	n := &News{Resources: slices.Clone(set), leaving: leaving}
	for _, l := range leaving {
		n.Resources = append(n.Resources, l.Resource)
	}
	var digest cache.Digest
	for _, r := range n.Resources {
		digest.Add(r)
	}
	n.Resources, n.Version = slices.Clip(n.Resources), digest.String()
	if shared && len(b.leaving) < v.x.hub.bounds.News {
		b.leaving = append(b.leaving, n)
	}
	return n
}
