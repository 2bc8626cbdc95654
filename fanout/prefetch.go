package fanout

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// A client asks for the endpoints of a Cluster, or the routes of a Listener, once it has got that, and waits for another
// round trip. So what a new or changed resource mentions is subscribed upstream at once (UP-28). To the Hub it is as if
// a client had just given it up: it lingers, and is given up unless somebody asks for it. It never takes the place of
// another name that lingers.

// turn is a resource that has come in the place of another one; was may be nil.
type turn struct{ was, is *cache.Resource }

// recorder keeps them, if that is wanted.
type recorder struct {
	kept bool
	all  []turn
}

func (r *recorder) changes(before, now *cache.Resource) {
	if r.kept && now != nil {
		r.all = append(r.all, turn{before, now})
	}
}

// mentioned returns what resources mention that those in whose place they have come did not.
func mentioned(of cache.TypeURL, turns []turn) (fresh []cache.Mention) {
	for _, t := range turns {
		var old []cache.Mention
		if t.was != nil {
			old = t.was.Mentions(of)
		}
		for _, m := range t.is.Mentions(of) {
			if !slices.Contains(old, m) {
				fresh = append(fresh, m)
			}
		}
	}
	return fresh
}

// prefetch has names linger that resources of a type mention.
func (h *Hub) prefetch(of cache.TypeURL, turns []turn, types []cache.TypeURL, now time.Time) {
	names := make(map[cache.TypeURL][]string)
	for _, m := range mentioned(of, turns) {
		names[m.Type] = append(names[m.Type], m.Name)
	}
	for _, t := range types {
		if len(names[t]) > 0 {
			h.Prefetch(t, names[t], now)
		}
	}
}

// Prefetch has names of a type linger, or the wildcard, that no client asks for yet. Where clients use the wildcard,
// names would need a second stream (WILD-13) and are left to them, and the other way round. What a glob covers that clients
// ask for comes with it.
func (h *Hub) Prefetch(t cache.TypeURL, names []string, now time.Time) {
	until := now.Add(h.limits.Load().Linger)
	if !until.After(now) {
		return
	}
	x := h.types.of(h, t)
	x.change(func(x *index) {
		for _, name := range names {
			x.prefetch(name, until)
		}
	})
	h.types.drop(t)
	h.wanted.notify()
}

func (x *index) prefetch(name string, until time.Time) {
	wanted := x.notes()
	switch {
	case x.suspect, x.linger.len >= x.linger.most, wanted.wildcard:
	case x.desiredGlob(name):
	case name != Wildcard:
		if id := x.named.Intern(name); !x.desired(id) {
			x.expect(id, until)
		}
	case !wanted.named:
		x.wildcard.pinned = true
		x.expect(wildcardID, until)
	}
}

// expect has a name linger for a client that has not come yet. It is to hear at once that the name does not exist, so
// the name lingers also then.
func (x *index) expect(id cache.ID, until time.Time) {
	x.linger.add(id, stay{until: until, awaited: true})
	x.changed(id)
}
