package downstream

import "sync"

// senders are the few goroutines that send for all streams. A change concerns thousands
// of them at once, and a goroutine for each would cost more than what it has to say.
// They are there while a stream has something to say, and must not wait for a client:
// what might wait gets a goroutine of its own (stream.send).
type senders struct {
	limit int

	mu      sync.Mutex
	running int
	queue   []*stream // each at most once, as stream.sending says
	head    int       // of the queue: what lies before it is done
}

// add has somebody send for a stream. It does not block.
func (s *senders) add(st *stream) {
	s.mu.Lock()
	s.queue = append(s.queue, st)
	hire := s.running < s.limit
	if hire {
		s.running++
	}
	s.mu.Unlock()
	if hire {
		go func() {
			for st := s.take(); st != nil; st = s.take() {
				st.send(true)
			}
		}()
	}
}

// take is the next stream, or nil: the sender is not needed any more.
func (s *senders) take() *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.head == len(s.queue) {
		s.running--
		s.queue, s.head = s.queue[:0], 0
		if cap(s.queue) > keepQueue {
			s.queue = nil
		}
		return nil
	}
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
