package downstream

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// Another configuration, while clients are there. It is a value: whoever looks at it takes
// the pointer once, and a Session is handed its own under the stream's mutex.

// limits are what of a ServerConfig can be changed while the Server runs.
type limits struct {
	session                   *session.Config
	firstMessage              time.Duration
	requestRate, requestBurst int
	stallTimeout              time.Duration
}

func (c *ServerConfig) limits() *limits {
	session := c.Config
	return &limits{
		session: &session, firstMessage: c.FirstMessage,
		requestRate: c.RequestRate, requestBurst: c.RequestBurst, stallTimeout: c.StallTimeout,
	}
}

// Reconfigure puts another configuration in force: what Sessions are told, FirstMessage,
// RequestRate, RequestBurst and StallTimeout, for the streams that are open, too. The rest
// is gRPC's from the start, and is left as it was. Not to be called twice at a time.
func (s *Server) Reconfigure(c ServerConfig) {
	c.Random = s.config.Random
	to := c.limits()
	s.limits.Store(to) // before looking who is there: who comes after that finds it
	for _, st := range s.open() {
		st.configure(to)
		st.rewatch(to.stallTimeout)
		st.kick() // what was waited for may be due now
	}
}

func (st *stream) configure(l *limits) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.session.Reconfigure(l.session)
}

// limit is the stream's limiter, nil where requests are not limited. It is the receiver's.
func (st *stream) limit(l *limits) *rate.Limiter {
	switch {
	case l.requestRate == 0:
		return nil
	case st.limiter == nil:
		st.limiter = rate.NewLimiter(rate.Limit(l.requestRate), l.requestBurst)
	case st.limiter.Limit() != rate.Limit(l.requestRate) || st.limiter.Burst() != l.requestBurst:
		st.limiter.SetLimit(rate.Limit(l.requestRate))
		st.limiter.SetBurst(l.requestBurst)
	}
	return st.limiter
}

// rewatch looks at the send under way again, if there is one: how long it may take has
// changed.
func (st *stream) rewatch(timeout time.Duration) {
	w := &st.stall
	if timer := w.timer.Load(); timer != nil && timer.Stop() {
		w.running.Store(false)
	}
	if began := w.began.Load(); began != 0 && timeout > 0 {
		st.watch(max(timeout-time.Since(time.Unix(0, began)), 0))
	}
}
