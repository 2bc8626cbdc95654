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

	// What upstream says, on the two lanes, and what it shows that is in neither Table (UP-9).
	named    namedLane
	wildcard wildcardLane
	shown    shown
	latest   cache.Seq // of the changes to either lane
	leaving  leaving
	suspect  bool // upstream may be refusing the type

	// What follows for names from both lanes, and from what was loaded from disk.
	answers  answers
	loans    loans
	restored restored

	// Who wants what, and who is to be told.
	interest interest
	marks    marker
	readers  readers
	linger   lingerers
	bodies   bodies

	touched []cache.ID // scratch of one change
}

func newIndex(h *Hub, t cache.TypeURL) *index {
	x := &index{hub: h, url: t, mu: &sync.Mutex{}}
	if h.config.Lock != nil {
		x.mu = h.config.Lock()
	}
	x.named, x.wildcard = namedLane{lane: x.newLane(&x.named)}, wildcardLane{lane: x.newLane(&x.wildcard)}
	x.shown = shown{hub: h, table: &x.named.Table}
	x.answers, x.marks.interest = answers{&x.named.Table, &x.wildcard.Table}, &x.interest
	x.leaving.x, x.loans.x, x.restored.x, x.readers.x, x.bodies.x = x, x, x, x, x
	x.linger = lingerers{x: x, most: h.limits.Load().maxLinger}
	x.named.silence.named = &x.named
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
