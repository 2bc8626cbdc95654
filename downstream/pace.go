package downstream

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// What keeps a stream from costing more than its share: of requests, by reading
// them more slowly, and of what it does not read, by ending it.

// limiter is nil where requests are not limited.
func (s *Server) limiter() *rate.Limiter {
	if s.config.RequestRate == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(s.config.RequestRate), s.config.RequestBurst)
}

// pace waits if the stream has sent too many requests. The rest of them waits on
// the client's side, held back by the stream's window; a client that only asks too
// much too fast gets all of it, later. Nobody else waits.
func (st *stream) pace() {
	if st.limiter == nil {
		return
	}
	now := time.Now()
	wait := st.limiter.ReserveN(now, 1).DelayFrom(now)
	if wait <= 0 {
		return
	}
	st.server.observer.ClientRateLimited()
	if !st.paced {
		st.paced = true
		st.log().Warn("client sends requests faster than downstream.request_rate; it is read more slowly", "requests_per_second", st.server.config.RequestRate)
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
// not find it.
type stallWatch struct {
	timeout time.Duration
	timer   *time.Timer // from the first send on
	began   time.Time   // of the send under way; zero: none. Guarded by stream.mu
}

// sendBegins is called before a send, sendEnds after it, both by the one sender.
func (st *stream) sendBegins(now time.Time) {
	w := &st.stall
	if w.timeout == 0 {
		return
	}
	st.mu.Lock()
	w.began = now
	st.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(w.timeout, st.stalled)
	} else {
		w.timer.Reset(w.timeout)
	}
}

func (st *stream) sendEnds() {
	w := &st.stall
	if w.timeout == 0 {
		return
	}
	w.timer.Stop()
	st.mu.Lock()
	w.began = time.Time{}
	st.mu.Unlock()
}

// stalled is called when a send may have waited too long.
func (st *stream) stalled() {
	w := &st.stall
	st.mu.Lock()
	waited := time.Since(w.began)
	over := !w.began.IsZero() && waited >= w.timeout // not a later send
	st.mu.Unlock()
	if !over {
		return
	}
	st.server.observer.ClientStalled()
	st.end(&End{Stalled, fmt.Sprintf("the client has read nothing for %v while responses wait; "+
		"connect again to get what was missed (downstream.stall_timeout)", w.timeout)})
	st.server.hangUp(st)
}
