package fanout

import (
	"runtime"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// index is everything that a group knows about one type: the resources, and who wants them.
type index struct {
	hub *Hub
	url cache.TypeURL

	// Everything below is guarded by mu.
	mu sync.Locker
	// dropped: the Hub has removed the index, because nothing was known or wanted of the type any
	// more.
	dropped bool

	// What upstream has sent, on the two lanes, and what it has sent that is in neither Table
	// (UP-9).
	named       namedLane
	wildcard    wildcardLane
	unsolicited unsolicited
	latest      cache.Seq // of the changes to either lane
	noted       noted     // in the Hub's agenda
	leaving     leaving
	suspect     bool // upstream may be refusing the type

	// What names lead to, given both lanes and what was loaded from disk.
	answers answers

	// What nobody wants any more, on its way to the disk and from there.
	unwanted unwanted
	shelf    shelf

	// Who subscribes to what, who is to be woken, and what lingers.
	interest interest
	marks    marker
	sampled  time.Time // when the last change came whose convergence is measured
	readers  readers
	linger   lingerers
}

func newIndex(h *Hub, t cache.TypeURL) *index {
	x := &index{hub: h, url: t, mu: &sync.Mutex{}}
	if h.config.Lock != nil {
		x.mu = h.config.Lock()
	}
	x.named = namedLane{lane: x.newLane(Lane{t, false}, &x.named), refused: make(map[string]uint64), again: make(map[string]struct{}), complete: make(map[string]struct{})}
	x.named.Turned = func(id cache.ID) { x.named.turned.add(id, struct{}{}) }
	x.wildcard = wildcardLane{lane: x.newLane(Lane{t, true}, &x.wildcard)}
	x.answers, x.marks.interest = answers{&x.named.Table, &x.wildcard.Table}, &x.interest
	if !t.Basic() {
		x.interest.holders = make(map[string]int)
	}
	x.leaving.x, x.readers.x, x.unsolicited.x, x.unwanted.x, x.shelf.x = x, x, x, x, x
	x.unsolicited.reset()
	x.linger = lingerers{x: x, most: h.limits.Load().MaxLinger}
	return x
}

// change makes a change under the lock, and then wakes the Subscribers that it concerns.
func (x *index) change(change func(*index)) {
	x.mu.Lock()
	defer x.unlock()
	change(x)
}

// inParts makes a change for each of very many names, and lets others have the lock after every Bounds.Part of them.
// There is a part even if there are no names.
func inParts[T any](x *index, names []T, take func(part []T)) {
	for {
		n := min(x.hub.config.Bounds.Part, len(names))
		x.change(func(*index) { take(names[:n]) })
		if names = names[n:]; len(names) == 0 {
			return
		}
		runtime.Gosched() // those who wait for the lock go first
	}
}

// unlock ends a change: it releases the lock, and then wakes the Subscribers that the change concerns.
func (x *index) unlock() {
	x.linger.settle()
	x.note()
	woken := x.marks.woken
	x.marks.woken = nil
	x.mu.Unlock()
	for _, s := range woken {
		s.wake()
	}
}

func (x *index) next() cache.Seq {
	x.latest = cache.Seq(x.hub.seq.Add(1))
	return x.latest
}

// fullState reports whether a SotW response of the type lists everything that exists.
func (x *index) fullState() bool { return x.hub.Properties(x.url).FullState }

// markNamed marks names whose answers have changed.
func (x *index) markNamed(touched []cache.ID) {
	for _, id := range touched {
		x.marks.mark(id, content)
		x.linger.changes(id)
	}
}
