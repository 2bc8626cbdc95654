package downstream

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// The limits that keep a stream from costing more than its share: one that sends too many
// requests is read more slowly, and one that does not read is ended.

// Names that upstream has not been asked for, or for which there is no room, cost the relay and the control plane about
// 10 µs each, on streams that all clients share. So one holder may ask for newNames of them at once, and for as many
// again in newNamesIn, divided by the number of processors. Requests of more than manyNames are taken in by half of the
// processors (VALID-8).
const (
	newNames   = 10_000
	newNamesIn = 500 * time.Millisecond
	manyNames  = 1000
)

// pace waits if the stream has sent too many requests, or if its client has asked for too many names. Further requests
// wait on the client's side, held back by the stream's window, so a client that only asks too fast gets all answers,
// later. No stream of somebody else waits.
func (st *stream) pace(note session.Note) {
	now, config := time.Now(), st.server.now.Load()
	var requests, names time.Duration
	if note.Unasked > 0 {
		names = st.names.asks(note.Unasked, now)
	}
	if limiter := st.limit(config); note.Charged && limiter != nil {
		requests = limiter.ReserveN(now, 1).DelayFrom(now)
	}
	if requests <= 0 && names <= 0 {
		return
	}
	st.server.observer.ClientRateLimited()
	if requests > 0 && !st.paced {
		st.paced = true
		st.log().Warn("client sends requests faster than downstream.request_rate; it is read more slowly", "requests_per_second", config.RequestRate)
	}
	if names > 0 {
		st.server.full.warn(st.log(), "new names", "client asks for very many names that nobody has asked for; it is read more slowly", "names", note.Unasked)
	}
	st.wait(max(requests, names))
}

// wait waits, or until the stream ends; then receiving will return the reason.
func (st *stream) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-st.grpc.Context().Done():
	}
}

// awaitTurn waits until a request of very many names may be taken in, and returns what is to be called when it is. Its
// holder may have asked for too many on other streams.
func (st *stream) awaitTurn(names int) (over func()) {
	if names <= manyNames {
		return func() {}
	}
	crowd, ended := st.server.names.crowd, st.grpc.Context().Done()
	over = func() { <-crowd }
	for {
		select {
		case crowd <- struct{}{}:
		case <-ended:
			return func() {}
		}
		d := st.names.asks(0, time.Now())
		if d == 0 {
			return over
		}
		over()
		st.wait(d)
	}
}

// limiters are those of a connection's streams that have ended. New streams go on with them: otherwise each could send as
// much at once as the first. There are as many as streams were open at once.
type limiters struct {
	mu   sync.Mutex
	left []*rate.Limiter
}

// takesLimiter gives a new stream one of them, if there is any.
func (st *stream) takesLimiter() {
	if st.conn == nil {
		return
	}
	l := &st.conn.requests
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := len(l.left) - 1; last >= 0 {
		st.limiter, l.left = l.left[last], l.left[:last]
	}
}

// leavesLimiter leaves the limiter of a stream that has ended to the next one.
func (st *stream) leavesLimiter() {
	if st.conn == nil || st.limiter == nil {
		return
	}
	l := &st.conn.requests
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = append(l.left, st.limiter)
}

// stallWatch ends a stream whose client does not read, when a send has waited for it too long.
// keepalive does not notice such a client, since gRPC answers its pings. The timer is not reset
// by every send: when it fires, it looks whether a send has begun and is not finished.
type stallWatch struct {
	running atomic.Bool  // the timer
	began   atomic.Int64 // start of the current send, in ns since 1970; 0 if there is none
	timer   atomic.Pointer[time.Timer]
}

// sendBegins is called before a send and sendEnds after it, both by the one sender.
func (st *stream) sendBegins(now time.Time) {
	st.stall.began.Store(now.UnixNano()) // even without a timeout, since one may be configured meanwhile
	if timeout := st.server.now.Load().StallTimeout; timeout > 0 {
		st.watch(timeout)
	}
}

func (st *stream) sendEnds() { st.stall.began.Store(0) }

// watch looks at the current send after a time, unless a timer is running already.
func (st *stream) watch(after time.Duration) {
	if w := &st.stall; w.running.CompareAndSwap(false, true) {
		w.timer.Store(time.AfterFunc(after, st.stalled))
	}
}

// unwatch stops the timer when the stream has ended.
func (st *stream) unwatch() {
	if timer := st.stall.timer.Load(); timer != nil {
		timer.Stop()
	}
}

// stalled is called when a send may have waited too long.
func (st *stream) stalled() {
	w := &st.stall
	w.running.Store(false) // a send that begins now sets the timer itself
	began, timeout := w.began.Load(), st.server.now.Load().StallTimeout
	if began == 0 || timeout == 0 {
		return
	}
	if left := timeout - time.Since(time.Unix(0, began)); left > 0 {
		st.watch(left)
		return
	}
	st.server.observer.ClientStalled()
	st.end(&session.End{Reason: session.Stalled, Message: fmt.Sprintf("the client has read nothing for %v while responses wait; "+
		"connect again to get what was missed (downstream.stall_timeout)", timeout)})
	st.server.hangUp(st)
}
