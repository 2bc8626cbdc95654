package downstream

import (
	"sync"
	"time"
)

// senders are the few goroutines that send for all streams. A change concerns thousands
// of them at once, and a goroutine for each would cost more than what it has to say.
// They are there while streams have something to say, and a moment longer: one that is
// begun for each change would have to grow its stack again.
//
// None of them should ever wait for a client: what might gets a goroutine of its own
// (stream.send). But a client may ACK what it has not read. So if none of them gets on
// while streams wait, they are written off, and others, twice as many, take over; a stream
// that has held one up has its own for a while.
type senders struct {
	limit int // how many there are at most, unless they are held up

	mu      sync.Mutex
	crew    int // who takes over counts one more; those before go when they are free
	size    int // of the crew, at most
	running int // of the crew, those at rest included
	resting int // of the crew: they wait for come
	come    *sync.Cond
	closed  bool      // nobody rests any more
	queue   []*stream // each at most once, as stream.sending says
	head    int       // of the queue: what lies before it is done
	taken   uint64    // streams, so far
	looked  uint64    // taken when look was called last
	looking bool      // look will be called
	asked   uint64    // taken when stuck was called last
}

func newSenders(limit int) *senders {
	s := &senders{limit: limit, size: limit}
	s.come = sync.NewCond(&s.mu)
	return s
}

// heldUp is how long no sender gets on before there are more of them.
const heldUp = 100 * time.Millisecond

// add has somebody send for a stream. It does not block.
func (s *senders) add(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, st)
	switch {
	case s.resting > 0:
		s.resting--
		s.come.Signal()
	case s.running < s.size:
		s.hire(1)
	}
	s.watch()
}

func (s *senders) hire(n int) {
	s.running += n
	crew := s.crew
	for range n {
		go func() {
			for st := s.take(crew); st != nil; st = s.take(crew) {
				st.send(true)
			}
		}()
	}
}

// watch looks at the senders after a while, unless somebody does so already.
func (s *senders) watch() {
	if !s.looking {
		s.looking, s.looked = true, s.taken
		time.AfterFunc(heldUp, s.look)
	}
}

// look lets others take over if streams have waited for nothing, and lets all go if there
// was nothing to do.
func (s *senders) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looking = false
	waiting := len(s.queue) - s.head
	switch {
	case s.taken != s.looked:
		s.watch()
	case waiting > 0:
		s.dismiss()
		s.size *= 2
		s.hire(min(waiting, s.size))
		s.watch()
	default:
		s.dismiss()
	}
}

// dismiss lets the crew go: those at rest at once, the others when they are free.
func (s *senders) dismiss() {
	s.crew++
	s.running, s.resting = 0, 0
	s.come.Broadcast()
}

// stuck reports whether streams wait, and none was taken since it was asked last.
func (s *senders) stuck() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.asked
	s.asked = s.taken
	return len(s.queue) > s.head && was == s.taken && s.taken > 0
}

// close lets the senders go as soon as there is nothing to do.
func (s *senders) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.resting = true, 0
	s.come.Broadcast()
}

// take is the next stream, or nil: the sender is not needed any more.
func (s *senders) take(crew int) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	for crew == s.crew && s.head == len(s.queue) {
		s.queue, s.head = s.queue[:0], 0
		if cap(s.queue) > keepQueue {
			s.queue = nil
		}
		s.size = s.limit
		if s.running > s.limit || s.closed {
			s.running--
			return nil
		}
		s.resting++
		s.come.Wait()
	}
	if crew != s.crew {
		return nil
	}
	s.taken++
	st := s.queue[s.head]
	s.queue[s.head] = nil
	s.head++
	if s.head > keepQueue && 2*s.head > len(s.queue) {
		s.queue = s.queue[:copy(s.queue, s.queue[s.head:])]
		s.head = 0
	}
	return st
}

// keepQueue is how much of an empty queue is kept.
const keepQueue = 1 << 14
