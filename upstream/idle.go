package upstream

import (
	"time"

	"github.com/xds-relay/xds-relay/upstream/session"
)

// awaitSign has the log say that an entry is back although no response shows it: nothing is asked
// on a stream that has just been opened. A health check is the sign, or, where none is sent, that the
// stream lasts. The caller stops the wait when the stream has ended.
func (c *Client) awaitSign(s *stream, ads adsStream) (stop func()) {
	if len(c.hub.Lanes()) > 0 || !s.conn.isAway() {
		return func() {}
	}
	c.mu.Lock()
	patience, checks := c.core.Patience()
	c.mu.Unlock()
	if !checks {
		timer := time.AfterFunc(patience, func() { s.conn.tellSign(ads.sotw) })
		return func() { timer.Stop() }
	}
	s.conn.check(ads, patience, func(k session.Check) {
		if k.Result == session.There {
			s.conn.tellSign(ads.sotw)
		}
	})
	return func() {}
}

// isAway reports whether the log's last word on the entry is that it does not answer any more.
func (c *Conn) isAway() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.standing.answers && (c.standing.ever || len(c.standing.told) > 0)
}

// tellSign logs that an entry is there, unless the log says so already.
func (c *Conn) tellSign(sotw bool) {
	c.mu.Lock()
	news, away := c.standing.heard(time.Now())
	c.mu.Unlock()
	if news {
		c.tellAnswers(sotw, away)
	}
}
