package twin

import "time"

// Control planes that hang: stopped, or cut off without a word. Their connections stay,
// and what they are asked meanwhile they hear when they wake. Control planes that are not eager are slow:
// they read and are silent.

// hang stops a control plane, or lets it go on.
func (g *Game) hang(p *controlPlane, hung bool) {
	if p.hung == hung || p.down {
		return
	}
	g.checker.now = g.relay.Now()
	if hung {
		g.checker.silence()
		g.checker.hungSince[p.number] = g.checker.now
		p.hung = true
		g.relay.Hang(p.number, true)
		return
	}
	g.checker.late = !g.relay.Kills() // over gRPC what it hears now was said since it hung, on the pure cores just now
	g.relay.Hang(p.number, false)
	g.relay.Settle()
	g.checker.late = false
	delete(g.checker.hungSince, p.number)
	p.hung = false
}

// setDown makes a control plane unreachable, or reachable. One that went down is another
// process when it is back.
func (g *Game) setDown(p *controlPlane, down bool) {
	g.relay.Down(p.number, down)
	if down && !p.down {
		p.restart()
	}
	p.down = down
	if down {
		p.hung = false
		delete(g.checker.hungSince, p.number)
	}
}

// alive reports whether a stream was alive at some time after it had asked for something, so that its silence
// may count as an answer (MISS-3): a message came, or the control plane hung only after the relay could check it.
func (c *Checker) alive(s *relayStream, asked time.Time) bool {
	since, hung := c.hungSince[s.plane]
	if !hung || !s.latest.IsZero() && !s.latest.Before(asked) {
		return true
	}
	if c.second {
		return since.After(asked) // it is checked from time to time (UP-14)
	}
	for _, o := range c.streams { // on the same connection, at the earliest after a second (ERR-1)
		for _, l := range o.lanes {
			for _, at := range l.names {
				if checked := at.Add(time.Second); o.plane == s.plane && !checked.Before(asked) && !checked.After(since) {
					return true
				}
			}
		}
	}
	return false
}

// askedAt is when the relay has written a request that is heard now: not before the
// control plane hung, if it did.
func (c *Checker) askedAt(s *relayStream) time.Time {
	if since, hung := c.hungSince[s.plane]; hung && c.late {
		return since
	}
	return c.now
}
