package demo

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// stats measures how changes travel. Clients report what they get.
type stats struct {
	deliveries atomic.Int64 // responses that clients got
	bytes      atomic.Int64 // what the relay sent to clients, on its sockets
	lost       atomic.Int64 // streams that ended, though the client had not left

	mu      sync.Mutex
	pending []*change
	// Of the changes that every client had in the end.
	changes     int
	last, worst time.Duration
	latest      *change
}

// change is one change at the control plane, on its way to the clients.
type change struct {
	key      key
	revision int
	start    time.Time
	waiting  map[*client]bool
	reached  int
	took     time.Duration // until the last client had it, once done is closed
	done     chan struct{}
	// afterOutage keeps the wait for the relay's next attempt to connect out of
	// the figures for changes.
	afterOutage bool
}

// Begin notes a change that is about to be made, and who should get it.
func (s *stats) Begin(k key, revision int, waiting []*client, afterOutage bool) *change {
	c := &change{
		key: k, revision: revision, start: time.Now(), waiting: make(map[*client]bool),
		done: make(chan struct{}), afterOutage: afterOutage,
	}
	for _, client := range waiting {
		c.waiting[client] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, c)
	s.settle()
	return c
}

// Restart begins the time of a change again.
func (s *stats) Restart(c *change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.start = time.Now()
}

// Got notes that a client has a resource at a revision. A later revision stands
// for the earlier ones.
func (s *stats) Got(c *client, k key, revision int) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pending {
		if p.key == k && p.revision <= revision && p.waiting[c] {
			delete(p.waiting, c)
			p.reached++
			p.took = now.Sub(p.start)
		}
	}
	s.settle()
}

// Left notes that a client is not there to get anything.
func (s *stats) Left(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pending {
		delete(p.waiting, c)
	}
	s.settle()
}

// settle closes the changes that nobody waits for any more. The caller holds mu.
func (s *stats) settle() {
	open := s.pending[:0]
	for _, p := range s.pending {
		if len(p.waiting) > 0 {
			open = append(open, p)
			continue
		}
		close(p.done)
		if p.reached == 0 {
			continue
		}
		s.changes++
		s.latest = p
		if !p.afterOutage {
			s.last = p.took
			s.worst = max(s.worst, p.took)
		}
	}
	clear(s.pending[len(open):])
	s.pending = open
}

// Pending is the number of changes that some client does not have yet.
func (s *stats) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)
}

// travel is what stats knows of the changes so far.
type travel struct {
	changes     int
	last, worst time.Duration
	latest      string // the change that was last complete, in words
}

func (s *stats) Travel() travel {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := travel{changes: s.changes, last: s.last, worst: s.worst}
	if s.latest != nil {
		t.latest = s.latest.String()
	}
	return t
}

// String says what has changed.
func (c *change) String() string {
	return fmt.Sprintf("%s of %s", kinds[c.key.typ], c.key.name)
}

// Waiting is how many clients do not have a change yet.
func (s *stats) Waiting(c *change) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(c.waiting)
}
