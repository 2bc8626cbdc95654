package fanout

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TypeSummary sums up one type of a group, for metrics.
type TypeSummary struct {
	Type cache.TypeURL
	// Resources counts distinct names: a resource that came on both lanes counts
	// once. Bytes counts both lanes, because both copies are kept.
	Resources, Bytes int
	// Wildcards is the number of clients with the wildcard, and Named that of the pairs of a client
	// and a name it subscribes to.
	Wildcards, Named int
	// Gone counts the removed names that are remembered: a reader has not been sent the removal, or
	// it happened recently (H-42).
	Gone int
	// Held counts the removals that the guard holds back (H-22).
	Held int
	// Absent counts the subscribed names that do not exist, by how the relay knows.
	Absent map[cache.Cause]int
	// InDoubt counts the names in doubt: upstream sent something that cannot be used, or only a
	// silence that proves little says that they do not exist. Withheld counts the clients from
	// which something is withheld because it is in doubt or restored (certainty.go).
	InDoubt, Withheld int
	// Restored reports whether some of the type is restored, and not confirmed by upstream yet.
	Restored bool
	// States counts the names that the group subscribes to, and the members of the wildcard's set, by what the
	// relay knows of them.
	States map[ClientState]int
}

// Summarize returns a summary of each type of the group, in order of their URLs. Its cost grows
// with the names, not with the clients that want them.
func (h *Hub) Summarize() []TypeSummary {
	var sums []TypeSummary
	for x := range h.types.locked() {
		sums = append(sums, summarize(x))
	}
	slices.SortFunc(sums, func(a, b TypeSummary) int { return cmp.Compare(a.Type, b.Type) })
	return sums
}

func summarize(x *index) TypeSummary {
	t := TypeSummary{
		Type:      x.url,
		Resources: x.named.Len() + x.wildcard.Len(),
		Bytes:     x.named.Bytes() + x.wildcard.Bytes(),
		Wildcards: len(x.interest.of(wildcardID)),
		Gone:      x.wildcard.Tombstones(),
		Held:      len(x.named.guard.held) + len(x.wildcard.guard.held),
		Absent:    make(map[cache.Cause]int),
		InDoubt:   len(x.named.faults.malformed) + len(x.wildcard.faults.malformed),
		Withheld:  x.interest.withheld,
		Restored:  x.anyUnconfirmed(),
		States:    x.states(),
	}
	fewer, more := &x.named.Table, &x.wildcard.Table
	if fewer.Len() > more.Len() {
		fewer, more = more, fewer
	}
	for c := range fewer.Since(0) {
		if c.Resource != nil && more.Has(c.Name) {
			t.Resources--
		}
	}
	for id, subs := range x.interest.named() {
		t.Named += len(subs)
		if a := x.answers.of(id); a.State == cache.Absent {
			t.Absent[a.Cause]++
			if x.named.unproven(a) {
				t.InDoubt++
			}
		}
	}
	return t
}

// Place is the position of a Description in the order of Describe.
type Place struct {
	Name     string
	Wildcard bool
}

func (p Place) compare(q Place) int {
	if c := cmp.Compare(p.Name, q.Name); c != 0 || p.Wildcard == q.Wildcard {
		return c
	}
	if q.Wildcard {
		return -1
	}
	return 1
}

// Description is what the relay knows of one name on one lane, without the body.
type Description struct {
	Place
	State cache.State
	Cause cache.Cause
	// Resource is the resource that the name leads to, if any. It is on another lane or has another
	// name if the name is an alias or leads to the wildcard's copy.
	Resource *cache.Resource
	// Upstream is the control plane's own version of the resource, if this lane has one.
	Upstream string
	// Clients is the number of clients that subscribe to the name or, on the wildcard's lane, to
	// the wildcard.
	Clients int
	// Lingering: no client subscribes to the name, but the relay still does.
	Lingering bool
	// Doubt: a client that came with a copy keeps it, because what upstream sent last cannot be
	// used (ERR-10), or because its silence is no answer (MISS-4).
	Doubt bool
	// Error is upstream's error for the name (ERR-8).
	Error string
	// TimedOut: that error is that upstream, which answers every name, has not answered this one (MISS-5).
	TimedOut bool
	// Held is until when upstream's removal of the name is held back (H-22); zero if it is not.
	Held time.Time
	// Ends is when the TTL runs out on this lane; zero if there is none.
	Ends time.Time
	// Changed is when the response came that made the name what it is, or with ChangedBefore a time by
	// which that had come; zero if no response did.
	Changed       time.Time
	ChangedBefore bool
	// Former is what the name was before, if that is remembered (History).
	Former *cache.Resource
}

// Types returns the types that the group knows of, in order of their URLs.
func (h *Hub) Types() []cache.TypeURL {
	h.types.mu.RLock()
	defer h.types.mu.RUnlock()
	return slices.Sorted(maps.Keys(h.types.indexes))
}

// places returns the Places after one that Describe has something to say about and whose names match.
func places(x *index, after Place, match func(name string) bool) (places []Place) {
	add := func(p Place) {
		if p.compare(after) > 0 && match(p.Name) {
			places = append(places, p)
		}
	}
	for id := range cache.ID(x.named.Cap()) {
		if name := x.named.Name(id); name != "" && (x.named.State(id) != cache.Unknown || x.desired(id)) {
			add(Place{Name: name})
		}
	}
	for change := range x.wildcard.Since(0) {
		add(Place{Name: change.Name, Wildcard: true})
	}
	return places
}

func describe(x *index, places []Place) []Description {
	// A name that has gone since the places were listed is Unknown now. It stays in the page, since
	// the next page starts after the last Place of this one.
	descriptions := make([]Description, len(places))
	for i, p := range places {
		d, l := &descriptions[i], x.lane(Lane{x.url, p.Wildcard})
		d.Place = p
		var a cache.Answer
		if p.Wildcard {
			if id, ok := x.wildcard.Find(p.Name); ok {
				a, d.Upstream = x.wildcard.Answer(id), x.wildcard.Upstream(id)
				d.Ends, _, _ = x.wildcard.Ends(id)
			}
			d.Clients = len(x.interest.of(wildcardID))
		} else if id, ok := x.named.Find(p.Name); ok {
			a, d.Upstream = x.answers.of(id), x.named.Upstream(id)
			d.Ends, _, _ = x.named.Ends(id)
			d.Clients = len(x.interest.of(id))
		}
		if h, held := l.guard.held[p.Name]; held {
			d.Held = h.until
		}
		if a.State != cache.Present {
			if d.Doubt = x.named.mayHold(p.Name, a); p.Wildcard {
				d.Doubt = x.wildcard.mayHold(p.Name)
			}
		}
		if a.Seq > 0 {
			var exact bool
			d.Changed, exact = x.hub.Arrived(a.Seq)
			d.ChangedBefore = !exact && !d.Changed.IsZero()
		}
		if h := x.hub.config.History; h != nil {
			d.Former = h.before(former{x.hub, l.at, p.Name})
		}
		d.Lingering = d.Clients == 0
		d.State, d.Cause, d.Resource, d.Error = a.State, a.Cause, a.Resource, a.Error.GetMessage()
		d.TimedOut = a.Error == unanswered
	}
	return descriptions
}
