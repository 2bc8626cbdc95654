package downstream

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// senders are the few goroutines that send for all streams. A change concerns thousands of
// streams at once, and a goroutine for each would cost more than the sending. Senders exist while
// streams have something to send and a moment longer, since a new goroutine for each change would
// have to grow its stack again.
//
// No sender should ever wait for a client: a stream whose send might wait gets a goroutine of its
// own (stream.send). But a client may acknowledge what it has not read. So if streams wait and no
// sender takes one, the crew is given up, and another one, twice as large, takes over; a stream
// that has held up a sender keeps a goroutine of its own for a while.
//
// A stream is in one of these states:
//
//	      kick            take                might wait for its client
//	idle ------> queued --------> sent by the crew ----------> sent by a goroutine of its own
//	 ^                                  |                                  |
//	 +--- there is nothing more to send +----------------------------------+
//
// stream.sending is busy while the stream is queued or sent, and kicked if kick was called
// since: then the sender looks once more before the stream is idle. close sets it to over, from any
// state and for good; if the stream is queued or sent, the sender that notices lets close go on. So
// a stream is in the queue once, and one sender at a time works for it.
//
// A sender takes streams while there are any, and rests after that; look dismisses all senders when
// no stream was taken for heldUp. While a stream waits, or a sender exists, a call of look is due.
type senders struct {
	limit int // the greatest number of senders, unless they are held up

	mu      sync.Mutex
	crew    int // the number of the crew; senders of earlier crews end when they are free
	size    int // greatest size of the crew
	running int // of the crew, with those at rest
	resting int // of the crew, waiting for come
	come    *sync.Cond
	closed  bool      // senders no longer rest
	queue   []*stream // each stream at most once, by stream.sending
	head    int       // of the queue; entries before it are done
	taken   uint64    // streams taken so far
	looked  uint64    // value of taken at the last call of look
	looking bool      // look will be called
	asked   uint64    // value of taken at the last call of stuck
}

func newSenders(limit int) *senders {
	s := &senders{limit: limit, size: limit}
	s.come = sync.NewCond(&s.mu)
	return s
}

// heldUp is how long streams wait, while no sender takes one, before another crew takes over.
const heldUp = 100 * time.Millisecond

// add queues a stream for a sender. It does not block.
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

// watch has look called after a while, unless that is due already.
func (s *senders) watch() {
	if !s.looking {
		s.looking, s.looked = true, s.taken
		time.AfterFunc(heldUp, s.look)
	}
}

// look replaces the crew if streams have waited and none was taken, and dismisses it if there was
// nothing to do.
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

// dismiss ends the crew: senders at rest end at once, the others when they are free.
func (s *senders) dismiss() {
	s.crew++
	s.running, s.resting = 0, 0
	s.come.Broadcast()
}

// stuck reports whether streams wait and none was taken since the last call.
func (s *senders) stuck() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.asked
	s.asked = s.taken
	return len(s.queue) > s.head && was == s.taken && s.taken > 0
}

// close ends the senders as soon as there is nothing to send.
func (s *senders) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.resting = true, 0
	s.come.Broadcast()
}

// take returns the next stream, or nil if the sender is no longer needed.
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

// check returns the invariants that do not hold. They must hold at any time.
func (s *senders) check() (broken []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	must := func(holds bool, format string, a ...any) {
		if !holds {
			broken = append(broken, "senders: "+fmt.Sprintf(format, a...))
		}
	}
	// Entries before the head are done, and cleared.
	must(s.head <= len(s.queue), "the head is %d of a queue of %d", s.head, len(s.queue))
	must(!slices.ContainsFunc(s.queue[:s.head], func(st *stream) bool { return st != nil }), "what is done is still in the queue")
	// A stream waits in the queue once, and nobody else works for it.
	waiting := make(map[*stream]bool)
	for _, st := range s.queue[s.head:] {
		must(st != nil && !waiting[st], "a stream waits twice, or none does")
		waiting[st] = true
		must(st == nil || st.sending.Load() != idle, "a stream waits that is idle")
	}
	// Only senders of the crew rest, and none rests after close.
	must(s.resting >= 0 && s.resting <= s.running, "%d rest of %d", s.resting, s.running)
	must(!s.closed || s.resting == 0, "%d rest when all is over", s.resting)
	// While streams wait, the crew has senders; while it has any, look will be called.
	must(len(waiting) == 0 || s.looking && s.running > 0, "%d streams wait, for %d senders, looked at: %v", len(waiting), s.running, s.looking)
	must(s.running == 0 || s.looking || s.closed, "%d senders are there, and nobody looks", s.running)
	must(s.size >= s.limit && s.looked <= s.taken && s.asked <= s.taken, "%d senders, at least %d; %d taken, %d and %d seen", s.size, s.limit, s.taken, s.looked, s.asked)
	return broken
}

// keepQueue is the capacity that an empty queue may keep.
const keepQueue = 1 << 14

// sendTurn is a stream's with the senders: one at a time.
type sendTurn struct {
	sending atomic.Int32
	owed    int           // the sender's: bytes sent since the client owed no ACK
	slow    time.Time     // the sender's: until then the stream has a sender of its own
	quiet   chan struct{} // closed by the last sender, if close waits for it
}
