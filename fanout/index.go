package fanout

import (
	"sync"

	"github.com/xds-relay/xds-relay/cache"
)

// index is all that a group knows about one type: the resources, and who wants
// them.
type index struct {
	hub *Hub
	url cache.TypeURL

	// Everything below is guarded by mu.
	mu sync.Locker
	// dropped: the Hub has forgotten the index, because nobody was interested in
	// the type any more.
	dropped bool

	// What upstream says: of names, and of all of the type.
	named    namedLane
	wildcard wildcardLane
	answers  answers
	latest   cache.Seq // of the changes to either

	leaving leaving

	// shown: what upstream shows that is in neither Table (UP-9).
	shown    shown
	loans    loans
	restored restored

	// Interest.
	interest interest
	marks    marker
	readers  readers
	linger   lingerers
	suspect  bool

	// Names to be asked for once more, because the body of the answer was not kept
	// (VALID-5); asks: one was added during this Read.
	again map[cache.ID]struct{}
	asks  bool

	// Scratch of one Apply.
	touched []cache.ID
}

func newIndex(h *Hub, t cache.TypeURL) *index {
	x := &index{hub: h, url: t, mu: &sync.Mutex{}}
	if h.config.Lock != nil {
		x.mu = h.config.Lock()
	}
	x.marks.interest, x.shown = &x.interest, shown{hub: h, table: &x.named.Table}
	x.answers = answers{&x.named.Table, &x.wildcard.Table}
	x.loans.x, x.restored.x, x.readers.x = x, x, x
	x.linger = lingerers{x: x, most: h.limits.Load().maxLinger}
	x.named, x.wildcard = namedLane{lane: x.newLane(&x.named)}, wildcardLane{lane: x.newLane(&x.wildcard)}
	return x
}

// locked runs a change under the lock, and returns whom to wake after it.
func (x *index) locked(change func()) []*Subscriber {
	x.mu.Lock()
	defer x.mu.Unlock()
	change()
	return x.takeWoken()
}

func (x *index) next() cache.Seq {
	x.latest = cache.Seq(x.hub.seq.Add(1))
	return x.latest
}

// fullState: a SotW response of the type lists all that there is.
func (x *index) fullState() bool { return x.hub.Properties(x.url).FullState }

// markNamed marks names whose answers are others now.
func (x *index) markNamed(touched []cache.ID) {
	x.touched = touched
	for _, id := range touched {
		x.marks.mark(id, content)
		x.linger.changes(id)
	}
}

// takeWoken ends a change, and returns whom to wake after it.
func (x *index) takeWoken() []*Subscriber {
	x.linger.settle()
	return x.marks.take()
}
