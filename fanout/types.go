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

// find is the index of a type; nil: nothing is known or wanted of it.
func (t *types) find(url cache.TypeURL) *index {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.indexes[url]
}

// of is the index of a type, which is made if there is none.
func (t *types) of(h *Hub, url cache.TypeURL) *index {
	if x := t.find(url); x != nil {
		return x
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.indexes == nil {
		t.indexes = make(map[cache.TypeURL]*index)
	}
	if t.indexes[url] == nil {
		t.indexes[url] = newIndex(h, url)
	}
	return t.indexes[url]
}

// look asks something of a type, if anything is known of it, under its lock.
func (t *types) look(url cache.TypeURL, ask func(*index)) {
	if x := t.find(url); x != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		ask(x)
	}
}

// change changes a type, if anything is known of it, and wakes whom that concerns.
func (t *types) change(url cache.TypeURL, change func(*index)) {
	if x := t.find(url); x != nil {
		wakeAll(x.locked(func() { change(x) }))
	}
}

// drop forgets the index of a type if nothing is known and nothing wanted of it, so
// that types which clients once asked for cost nothing.
func (t *types) drop(url cache.TypeURL) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.indexes[url]
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.interest.subscriptions == 0 && x.named.Pins() == 0 && !x.wildcard.held && !x.suspect && !x.shown.remembers() {
		x.dropped = true
		delete(t.indexes, url)
	}
}

// all are the indexes of all types.
func (t *types) all() []*index {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Values(t.indexes))
}

// locked yields each under its lock.
func (t *types) locked() iter.Seq[*index] {
	return func(yield func(*index) bool) {
		for _, x := range t.all() {
			x.mu.Lock()
			more := yield(x)
			x.mu.Unlock()
			if !more {
				return
			}
		}
	}
}
