package downstream

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// The configuration may be replaced while clients are connected. It is a value: a reader loads
// the pointer once, and a Session gets its own under the stream's mutex.

// Reconfigure puts another configuration in force. For open streams, too, it changes the
// Sessions' configuration, FirstMessage, RequestRate, RequestBurst, StallTimeout, StaleAfter and REST; for connections,
// streams and names to come it changes MaxConnections, MaxStreamsOfAll and MaxNamesOfAll. The rest was given to gRPC at the start and stays. It must not
// be called concurrently.
func (s *Server) Reconfigure(c ServerConfig) {
	c.Random = s.config.Random
	s.now.Store(&c) // first, so that a stream that opens now finds it
	for _, st := range s.open() {
		st.with(func(of *session.Session) { of.Reconfigure(&c.Config) })
		st.rewatch(c.StallTimeout)
		st.kick() // a wait may be over now
	}
}

// Rejudge applies rules that have changed to all open streams, and to calls that go through (NODE-15). New ones are told by Groups.
func (s *Server) Rejudge() {
	s.rules.Add(1)
	for _, st := range s.open() {
		end, news := st.rejudge()
		if end != nil {
			st.end(end)
			continue
		}
		st.tellRefusals(news)
		st.kick()
	}
	for _, p := range s.passed() {
		p.rejudge()
	}
	s.rest.pollers.rejudge()
}

func (st *stream) rejudge() (end *session.End, news []session.Refusal) {
	st.with(func(of *session.Session) {
		end = of.Rejudge(time.Now())
		news = of.Refusals()
	})
	return end, news
}

// limit returns the stream's limiter, or nil if requests are not limited. Only the receiver calls it.
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

// rewatch looks at the current send again, because the timeout has changed.
func (st *stream) rewatch(timeout time.Duration) {
	w := &st.stall
	if timer := w.timer.Load(); timer != nil && timer.Stop() {
		w.running.Store(false)
	}
	if began := w.began.Load(); began != 0 && timeout > 0 {
		st.watch(max(timeout-time.Since(time.Unix(0, began)), 0))
	}
}
