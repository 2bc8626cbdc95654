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
	x    *index
	keep time.Duration // for how long; 0: nobody needs it
	now  time.Time     // of what is being applied
	all  []Leaving     // in order of their leaving, at most Bounds.Leaving
	// lost is the last change by which something left that is not among all.
	lost cache.Seq
}

// deadline is when to call forgetLeft; zero: nothing is remembered.
func (l *leaving) deadline() time.Time {
	if len(l.all) == 0 {
		return time.Time{}
	}
	return l.all[0].At.Add(l.keep)
}

// forgetLeft forgets what left long enough ago, and what left first of more than may be remembered.
func (l *leaving) forget() {
	n := max(0, len(l.all)-l.x.hub.bounds.Leaving)
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

// changes takes in that a name is about to bear another resource, or none. What expires by itself
// or is not to be kept is not remembered.
func (l *leaving) changes(t *cache.Table, id cache.ID, before, now *cache.Resource) {
	if t == &l.x.named.Table {
		l.x.interest.sums(id, before, now)
	}
	if before == nil {
		return
	}
	if l.keep == 0 || before.DoNotCache || expires(t, id) {
		l.lost = l.x.latest
		return
	}
	l.all = append(l.all, Leaving{before, t.Seq(id), l.x.latest, l.now, t == &l.x.wildcard.Table})
	l.forget()
}

// Remember says for how long what leaves the type from now on may be asked for by Leaving.
func (v View) Remember(keep time.Duration) { v.x.leaving.keep = keep }

// Leaving is what has left since the client was told of the type, up to a position: what it has
// and its interest does not lead to any more.
//
// What it was sent as leaving before is not among it: the other lane may have lost that since.
// Nor are members, for a client that has names, if not all that has left since is remembered: what
// its names led to may be what is lacking, and only that was sent (WILD-16).
func (v View) Leaving(told cache.Seq, before []Leaving) (all []Leaving) {
	at := make(map[string]int)
	for _, l := range before {
		at[l.Name] = -1
	}
	for _, l := range slices.Backward(v.x.leaving.all) {
		if l.to <= told {
			break
		}
		if !v.leaves(l, told, l.to) || l.member && len(v.s.ids) > 0 && told < v.x.leaving.lost {
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
	b, shared := &v.x.wildcard.board, len(v.s.ids) == 0 && !v.Husks()
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
	if shared && len(b.leaving) < v.x.hub.bounds.News {
		b.leaving = append(b.leaving, n)
	}
	return n
}
