package fanout

import (
	"slices"
	"sync"

	"github.com/xds-relay/xds-relay/cache"
)

// News is what has changed in the wildcard's set after a position. It is made once for all clients
// that need the same, so nobody may change it.
type News struct {
	Resources []*cache.Resource // in the order in which they changed
	Removed   []string          // in the same order
	Largest   int               // size of the largest resource in bytes, as Delta sends it

	// Version and Leaving are those of a whole set that lists leaving resources.
	Version string
	Leaving []Leaving

	wire [2]struct {
		once sync.Once
		form any
	}
	listing struct {
		once sync.Once
		of   Listing
	}
}

// Listing describes the content of a response for people: the number of names, and the first of
// them.
type Listing struct {
	Count int
	First []string
}

// maxListed bounds the names of a Listing.
const maxListed = 10

// List makes a Listing of resources and removed names.
func List(resources []*cache.Resource, removed []string) Listing {
	l := Listing{Count: len(resources) + len(removed)}
	l.First = make([]string, 0, min(l.Count, maxListed))
	for _, r := range resources[:min(len(resources), maxListed)] {
		l.First = append(l.First, r.Name)
	}
	l.First = append(l.First, removed[:min(len(removed), maxListed-len(l.First))]...)
	return l
}

// Listing returns that of the resources.
func (n *News) Listing() Listing {
	n.listing.once.Do(func() { n.listing.of = List(n.Resources, nil) })
	return n.listing.of
}

// Wire returns the resources as encode makes them for one of two variants of the protocol. encode
// is called once for each; callers that come meanwhile wait for it.
func (n *News) Wire(variant int, encode func([]*cache.Resource) any) any {
	w := &n.wire[variant]
	w.once.Do(func() { w.form = encode(n.Resources) })
	return w.form
}

// Lists reports whether these are exactly the resources of the News.
func (n *News) Lists(resources []*cache.Resource) bool {
	return len(resources) == len(n.Resources) && (len(resources) == 0 || &resources[0] == &n.Resources[0])
}

// board has the News that were made since the type last changed, by the first change in them.
type board struct {
	at      cache.Seq
	from    map[cache.Seq]*News
	leaving []*News // whole sets that list leaving resources
}

// News returns what has changed in the wildcard's set after a position. ok is false if the client
// also has names, because their resources have to be left out (WILD-9).
func (v Set) News(after cache.Seq) (n *News, ok bool) {
	if len(v.s.names.ids) > 0 {
		return nil, false
	}
	b := &v.x.wildcard.board
	if at := v.x.latest; b.from == nil || b.at != at {
		*b = board{at: at, from: make(map[cache.Seq]*News)}
	}
	first := cache.Seq(0) // positions are the group's: many lie between two changes
	if after > 0 {
		for c := range v.x.wildcard.Since(after) {
			first = c.Seq
		}
		if first == 0 {
			return new(News), true
		}
	}
	if n = b.from[first]; n != nil {
		return n, true
	}
	n = new(News)
	for c := range v.x.wildcard.Since(after) {
		if c.Resource != nil {
			n.Resources, n.Largest = append(n.Resources, c.Resource), max(n.Largest, c.Resource.Size())
		} else {
			n.Removed = append(n.Removed, c.Name)
		}
	}
	slices.Reverse(n.Resources)
	slices.Reverse(n.Removed)
	// A caller that appends to them gets a copy.
	n.Resources, n.Removed = slices.Clip(n.Resources), slices.Clip(n.Removed)
	if len(b.from) < v.x.hub.config.Bounds.News {
		b.from[first] = n
	}
	return n, true
}
