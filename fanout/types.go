package fanout

import (
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/xds-relay/xds-relay/cache"
)

// types are the indexes of one group.
type types struct {
	mu      sync.RWMutex
	indexes map[cache.TypeURL]*index
}

// find returns the index of a type; nil: nothing is known or wanted of it.
func (t *types) find(url cache.TypeURL) *index {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.indexes[url]
}

// of returns the index of a type, and makes one if there is none.
func (t *types) of(h *Hub, url cache.TypeURL) *index {
	if x := t.find(url); x != nil {
		return x
	}
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.indexes[url] == nil {
		t.indexes[url] = newIndex(h, url)
	}
	return t.indexes[url]
}

// look reads the index of a type under its lock, if there is one.
func (t *types) look(url cache.TypeURL, ask func(*index)) {
	if x := t.find(url); x != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		ask(x)
	}
}

// change changes the index of a type, if there is one, and wakes the Subscribers that this
// concerns.
func (t *types) change(url cache.TypeURL, change func(*index)) {
	if x := t.find(url); x != nil {
		x.change(change)
	}
}

// drop removes the index of a type if nothing is known and nothing wanted of it, so that types that
// clients once asked for cost nothing.
func (t *types) drop(url cache.TypeURL) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.indexes[url]
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	wanted := x.interest.subscriptions > 0 || x.named.Pins() > 0 || x.wildcard.pinned
	if !wanted && !x.remembers() {
		x.dropped = true
		x.hub.agenda.set(x, x.noted, noted{})
		delete(t.indexes, url)
	}
}

// remembers reports whether something has to be remembered of a type that nobody wants.
func (x *index) remembers() bool {
	forDisk := x.unwanted.any() || !x.shelf.empty()
	return forDisk || x.suspect || x.unsolicited.remembers()
}

// all returns the indexes of all types.
func (t *types) all() []*index {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Values(t.indexes))
}

// any reports whether such is true of any index, under its lock.
func (t *types) any(such func(*index) bool) bool {
	for x := range t.locked() {
		if such(x) {
			return true
		}
	}
	return false
}

// locked yields each index under its lock.
func (t *types) locked() iter.Seq[*index] {
	return func(yield func(*index) bool) {
		for _, x := range t.all() {
			x.mu.Lock()
			more := yield(x)
			x.note()
			x.mu.Unlock()
			if !more {
				return
			}
		}
	}
}
