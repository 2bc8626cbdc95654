package downstream

import (
	"fmt"
	"slices"
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
//
// A stream is in one of these states:
//
//	      kick            take                might wait for its client
//	idle ------> queued --------> sent by the crew ----------> sent by a goroutine of its own
//	 ^                                  |                                  |
//	 +--- there is nothing more to send +----------------------------------+
//
// Queued and sent are busy, or nagging if it was kicked since: who sends looks once more then,
// before the stream is idle. close makes it over, from any state and for good; if it is queued
// or sent, whoever finds out lets close go on. stream.sending says which it is, so that a stream is
// in the queue once, and one sender at a time is at work for it.
//
// A sender takes streams while there are any, and rests then; look lets all go when none was taken
// for heldUp. While anything waits, or a sender is there, look is about to be called.
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

// check says what does not hold that has to hold at any time.
func (s *senders) check() (broken []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	must := func(holds bool, format string, a ...any) {
		if !holds {
			broken = append(broken, "senders: "+fmt.Sprintf(format, a...))
		}
	}
	// What lies before the head is done, and kept by nobody.
	must(s.head <= len(s.queue), "the head is %d of a queue of %d", s.head, len(s.queue))
	must(!slices.ContainsFunc(s.queue[:s.head], func(st *stream) bool { return st != nil }), "what is done is still in the queue")
	// What waits does so once, and nobody else is at work for it.
	waiting := make(map[*stream]bool)
	for _, st := range s.queue[s.head:] {
		must(st != nil && !waiting[st], "a stream waits twice, or none does")
		waiting[st] = true
		must(st == nil || st.sending.Load() != idle, "a stream waits that is idle")
	}
	// Who rests is of the crew, and nobody rests when all is over.
	must(s.resting >= 0 && s.resting <= s.running, "%d rest of %d", s.resting, s.running)
	must(!s.closed || s.resting == 0, "%d rest when all is over", s.resting)
	// The crew is no smaller than it has to be, nor is it looked after less.
	must(len(waiting) == 0 || s.looking && s.running > 0, "%d streams wait, for %d senders, looked at: %v", len(waiting), s.running, s.looking)
	must(s.running == 0 || s.looking || s.closed, "%d senders are there, and nobody looks", s.running)
	must(s.size >= s.limit && s.looked <= s.taken && s.asked <= s.taken, "%d senders, at least %d; %d taken, %d and %d seen", s.size, s.limit, s.taken, s.looked, s.asked)
	return broken
}

// keepQueue is how much of an empty queue is kept.
const keepQueue = 1 << 14
