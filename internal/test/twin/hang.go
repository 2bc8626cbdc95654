package twin

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
		g.checker.conclude()
		g.checker.hungSince[p.number] = g.checker.now
		p.hung = true
		g.relay.Hang(p.number, true)
		return
	}
	g.relay.Hang(p.number, false)
	g.relay.Settle()
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
