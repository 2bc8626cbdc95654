package downstream

import (
	"time"

	"golang.org/x/time/rate"
)

// Another configuration, while clients are there. It is a value: whoever looks at it takes
// the pointer once, and a Session is handed its own under the stream's mutex.

// Reconfigure puts another configuration in force: what Sessions are told, FirstMessage,
// RequestRate, RequestBurst and StallTimeout, for the streams that are open, too. The rest
// is gRPC's from the start, and is left as it was. Not to be called twice at a time.
func (s *Server) Reconfigure(c ServerConfig) {
	c.Random = s.config.Random
	s.now.Store(&c) // before looking who is there: who comes after that finds it
	for _, st := range s.open() {
		st.configure(&c)
		st.rewatch(c.StallTimeout)
		st.kick() // what was waited for may be due now
	}
}

func (st *stream) configure(c *ServerConfig) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.session.Reconfigure(&c.Config)
}

// limit is the stream's limiter, nil where requests are not limited. It is the receiver's.
func (st *stream) limit(c *ServerConfig) *rate.Limiter {
	switch {
	case c.RequestRate == 0:
		return nil
	case st.limiter == nil:
		st.limiter = rate.NewLimiter(rate.Limit(c.RequestRate), c.RequestBurst)
	case st.limiter.Limit() != rate.Limit(c.RequestRate) || st.limiter.Burst() != c.RequestBurst:
		st.limiter.SetLimit(rate.Limit(c.RequestRate))
		st.limiter.SetBurst(c.RequestBurst)
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
