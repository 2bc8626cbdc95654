package downstream

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// What keeps a stream from costing more than its share: of requests, by reading
// them more slowly, and of what it does not read, by ending it.

// pace waits if the stream has sent too many requests. The rest of them waits on
// the client's side, held back by the stream's window; a client that only asks too
// much too fast gets all of it, later. Nobody else waits.
func (st *stream) pace() {
	config := st.server.now.Load()
	limiter := st.limit(config)
	if limiter == nil {
		return
	}
	now := time.Now()
	wait := limiter.ReserveN(now, 1).DelayFrom(now)
	if wait <= 0 {
		return
	}
	st.server.observer.ClientRateLimited()
	if !st.paced {
		st.paced = true
		st.log().Warn("client sends requests faster than downstream.request_rate; it is read more slowly", "requests_per_second", config.RequestRate)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-st.grpc.Context().Done(): // receiving will say why
	}
}

// stallWatch ends a stream whose client does not read: a send that waits for it
// has waited too long. gRPC answers pings for such a client, so that keepalive does
// not find it. Its timer is not touched by every send: once set it runs out, and then
// looks whether a send is under way.
type stallWatch struct {
	running atomic.Bool  // the timer
	began   atomic.Int64 // the send under way, in ns since 1970; 0: none is
	timer   atomic.Pointer[time.Timer]
}

// sendBegins is called before a send, sendEnds after it, both by the one sender.
func (st *stream) sendBegins(now time.Time) {
	st.stall.began.Store(now.UnixNano()) // whatever the timeout: it may be set meanwhile
	if timeout := st.server.now.Load().StallTimeout; timeout > 0 {
		st.watch(timeout)
	}
}

func (st *stream) sendEnds() { st.stall.began.Store(0) }

// watch looks at the send under way after a time, unless somebody does so already.
func (st *stream) watch(after time.Duration) {
	if w := &st.stall; w.running.CompareAndSwap(false, true) {
		w.timer.Store(time.AfterFunc(after, st.stalled))
	}
}

// unwatch gives the timer back when the stream has ended.
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
