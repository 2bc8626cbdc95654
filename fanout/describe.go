package fanout

import (
	"cmp"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TypeSummary sums up one type of a group, for metrics.
type TypeSummary struct {
	Type cache.TypeURL
	// Resources are distinct names; a resource that came on both lanes counts
	// once. Bytes are those of both lanes, because both are kept.
	Resources, Bytes int
	// Wildcards are the clients with the wildcard; Named the pairs of a client
	// and a name it subscribes to.
	Wildcards, Named int
	// Gone are names of which somebody is still to be told that they are gone, or was
	// not long ago (H-42).
	Gone int
	// Held are removals that are held back (H-22).
	Held int
	// Absent are the names that somebody wants and that do not exist, by why that is known.
	Absent map[cache.Cause]int
	// Doubtful are the names of which something came that cannot be used, or of which only a
	// silence says that they do not exist that nothing vouches for; Withheld are the clients
	// that are not told something because of that, or because it is from disk (verdict.go).
	Doubtful, Withheld int
	// Warm: something of it was loaded from disk, and upstream has not spoken yet.
	Warm bool
}

// Summarize sums up the types of the group, in order of their URLs. Its cost
// grows with the names, not with the clients that want them.
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
		Doubtful:  len(x.named.doubts.faulty) + len(x.wildcard.doubts.faulty) + len(x.named.silence.mute),
		Withheld:  x.interest.withheld,
		Warm:      x.restored.any(),
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
		}
	}
	return t
}

// Place is where a Description stands in the order of Describe.
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

// Description is what is known of one name on one lane, without its body.
type Description struct {
	Place
	State cache.State
	Cause cache.Cause
	// Resource is the one the name leads to, if any; for a name asked for by
	// alias, and for one served from the wildcard's copy, another lane's or
	// another name's.
	Resource *cache.Resource
	// Upstream is the upstream's own version of it, as far as this lane has it.
	Upstream string
	// Clients want it; for the wildcard lane, they have the wildcard.
	Clients int
	// Lingering: nobody wants it just now, but it is still subscribed.
	Lingering bool
	// Doubt: whoever came with a copy keeps it, because what upstream said last of the name
	// cannot be used (ERR-10), or its silence is no answer (MISS-4).
	Doubt bool
	// Error lies over the name (ERR-8).
	Error string
	// Held: upstream has taken it away; it is kept until then (H-22). Zero: it has
	// not.
	Held time.Time
	// Ends is when its TTL runs out on this lane; zero: never.
	Ends time.Time
}

// Types are those that the group knows of, in order of their URLs.
func (h *Hub) Types() []cache.TypeURL {
	var urls []cache.TypeURL
	for _, x := range h.types.all() {
		urls = append(urls, x.url)
	}
	slices.Sort(urls)
	return urls
}

// places are those that Describe has something to say about.
func places(x *index, after Place) (places []Place) {
	add := func(p Place) {
		if p.compare(after) > 0 {
			places = append(places, p)
		}
	}
	for id := range cache.ID(x.named.Cap()) {
		if name := x.named.Name(id); name != "" && (x.named.State(id) != cache.Unknown || x.desired(cache.ID(id))) {
			add(Place{Name: name})
		}
	}
	for change := range x.wildcard.Since(0) {
		add(Place{Name: change.Name, Wildcard: true})
	}
	return places
}

func describe(x *index, places []Place) []Description {
	// A name that went since the places were listed is Unknown now; it stays in the
	// page, which would not know where to go on without its last place.
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
		if _, mute := x.named.silence.mute[p.Name]; a.State != cache.Present {
			d.Doubt = mute && !p.Wildcard || l.doubts.concern(p.Name)
		}
		d.Lingering = d.Clients == 0
		d.State, d.Cause, d.Resource, d.Error = a.State, a.Cause, a.Resource, a.Error.GetMessage()
	}
	return descriptions
}
