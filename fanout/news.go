package fanout

import (
	"slices"
	"sync"

	"github.com/xds-relay/xds-relay/cache"
)

// News is what the wildcard's set has to tell after a position. It is made once for all
// clients who want to know the same: nobody may change it.
type News struct {
	Resources []*cache.Resource // in the order in which they changed
	Removed   []string          // the same
	Largest   int               // of the resources, as Delta sends it, in bytes

	// Of a whole set that lists what is leaving: its version, and what that is.
	Version string
	Leaving []Leaving

	wire [2]struct {
		once sync.Once
		form any
	}
	listing struct {
		once sync.Once
		of   *Listing
	}
}

// Listing is what a response was about, for people: how many names, and the first of them.
type Listing struct {
	Count int
	First []string
}

// maxListed bounds what a Listing has of names.
const maxListed = 10

// List makes a Listing of resources and names that are gone.
func List(resources []*cache.Resource, removed []string) *Listing {
	l := &Listing{Count: len(resources) + len(removed)}
	l.First = make([]string, 0, min(l.Count, maxListed))
	for _, r := range resources[:min(len(resources), maxListed)] {
		l.First = append(l.First, r.Name)
	}
	l.First = append(l.First, removed[:min(len(removed), maxListed-len(l.First))]...)
	return l
}

// Listing is that of the resources.
func (n *News) Listing() *Listing {
	n.listing.once.Do(func() { n.listing.of = List(n.Resources, nil) })
	return n.listing.of
}

// Wire is what the resources look like in one of two variants of the protocol. encode is
// called once; who comes meanwhile waits for it.
func (n *News) Wire(variant int, encode func([]*cache.Resource) any) any {
	w := &n.wire[variant]
	w.once.Do(func() { w.form = encode(n.Resources) })
	return w.form
}

// Lists reports whether these are the resources, all of them and no others.
func (n *News) Lists(resources []*cache.Resource) bool {
	return len(resources) == len(n.Resources) && (len(resources) == 0 || &resources[0] == &n.Resources[0])
}

// board has the News that were asked for since the type last changed, by the first
// change that they tell.
type board struct {
	at      cache.Seq
	from    map[cache.Seq]*News
	leaving []*News // whole sets that list what is leaving
}

// News is what has changed in the wildcard's set after a position. ok is false if the
// client also has names, which leave some of it out (WILD-9).
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
	// Whoever adds to them gets a copy.
	n.Resources, n.Removed = slices.Clip(n.Resources), slices.Clip(n.Removed)
	if len(b.from) < v.x.hub.bounds.News {
		b.from[first] = n
	}
	return n, true
}
