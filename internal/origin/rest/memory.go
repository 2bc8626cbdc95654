package rest

import (
	"context"
	"sync"
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
	turn  chan struct{}
	lanes map[bool]map[string]sighting // by wildcard
}

// sighting is a resource, and when it was last there or asked for.
type sighting struct {
	*cache.Resource
	at time.Time
}

// take waits for the turn to ask for a type; false: ctx has ended.
func (m *memory) take(ctx context.Context, t cache.TypeURL) (*seen, bool) {
	m.mu.Lock()
	s := m.types[t]
	if s == nil {
		s = &seen{turn: make(chan struct{}, 1), lanes: map[bool]map[string]sighting{false: {}, true: {}}}
		m.types[t] = s
	}
	m.mu.Unlock()
	select {
	case s.turn <- struct{}{}:
		return s, true
	case <-ctx.Done():
		return nil, false
	}
}

// give ends the turn.
func (s *seen) give() { <-s.turn }

// forget drops what nobody has asked for of late.
func (s *seen) forget(wildcard bool, now time.Time) {
	for name, of := range s.lanes[wildcard] {
		if now.Sub(of.at) > remembered {
			delete(s.lanes[wildcard], name)
		}
	}
}
