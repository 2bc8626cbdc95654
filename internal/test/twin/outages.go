package twin

import "slices"

// How control planes hang and go, and the relay ends.

// hang stops a control plane, or cuts it off without a word, or lets it go on. Its connections stay, and what it is asked
// meanwhile it hears when it wakes. (One that is not eager is slow: it reads and is silent.)
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

// save writes what the relay holds to its disk.
func (g *Game) save() {
	if g.snapshot {
		g.relay.Save()
	}
}

// restart ends the relay, which saves what it holds unless it is killed, and begins another one.
func (g *Game) restart(killed bool) {
	g.leave()
	if !killed {
		g.save()
	}
	g.relay.Restart()
}

// leave ends all that goes on with the relay.
func (g *Game) leave() {
	for _, p := range g.everybody() {
		g.hangUp(p)
	}
	for _, id := range slices.Clone(g.open) {
		g.StreamClosed(id, g.relay.Now())
	}
	g.checker.relayStarted()
}
