package rest

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// remembered is how long it is known that a name was there, since it was last asked for: much longer than the relay waits
// between two attempts.
const remembered = 10 * time.Minute

// memory is what is known of a group, whose streams come and go.
type memory struct {
	// Guarded by Source.mu.
	streams int
	left    time.Time

	mu    sync.Mutex
	types map[cache.TypeURL]*seen
}

// seen are the resources of a type that the control plane has shown. Whoever has the turn may ask for the type, and read
// and write the rest.
type seen struct {
	turn  slots
	queue atomic.Int32                 // who waits for the turn
	knock chan struct{}                // one slot: somebody has begun to
	lanes map[bool]map[string]sighting // by wildcard
}

// sighting is a resource, and when it was last there or asked for.
type sighting struct {
	*cache.Resource
	at time.Time
}

// sighted yields the resources.
func sighted(known map[string]sighting) iter.Seq[*cache.Resource] {
	return func(yield func(*cache.Resource) bool) {
		for _, of := range known {
			if !yield(of.Resource) {
				return
			}
		}
	}
}

// take waits for the turn to ask for a type; false: ctx has ended.
func (m *memory) take(ctx context.Context, t cache.TypeURL) (*seen, bool) {
	m.mu.Lock()
	s := m.types[t]
	if s == nil {
		s = &seen{turn: make(slots, 1), knock: make(chan struct{}, 1), lanes: map[bool]map[string]sighting{false: {}, true: {}}}
		m.types[t] = s
	}
	m.mu.Unlock()
	if s.turn.take() {
		return s, true
	}
	s.queue.Add(1)
	defer s.queue.Add(-1)
	poke(s.knock)
	select {
	case s.turn <- struct{}{}:
		return s, true
	case <-ctx.Done():
		return nil, false
	}
}

// sought reports whether somebody else waits for the turn. Who begins to afterwards knocks.
func (s *seen) sought() bool {
	select {
	case <-s.knock:
	default:
	}
	return s.queue.Load() > 0
}

// slots are as many as it has room for.
type slots chan struct{}

func (s slots) take() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) give() { <-s }

// forget drops what nobody has asked for of late.
func (s *seen) forget(wildcard bool, now time.Time) {
	for name, of := range s.lanes[wildcard] {
		if now.Sub(of.at) > remembered {
			delete(s.lanes[wildcard], name)
		}
	}
}
