package twin

import "time"

// How a game ends.

// finish brings everything to rest, and judges.
func (g *Game) finish() {
	g.held = false
	g.relay.Hold(false)
	for _, p := range g.everybody() {
		p.deaf = false
		g.relay.Deaf(p.id, false)
	}
	g.relay.Settle()
	g.rested()
	g.log("--- what waits for an ACK waits no more")
	g.relay.Wait(3 * ackTimeout)
	g.checker.now = g.relay.Now()
	if g.rest(); g.failed() {
		return
	}
	g.log("--- all becomes quiet")
	poisoned := false
	for _, p := range g.planes {
		poisoned = poisoned || p.habits&poison != 0
		p.habits = p.habits&^poison | eager
		for _, k := range kinds {
			p.setTTL(k, p.names, 0)
		}
		if p.erred {
			p.habits &^= silent // an error is no answer (ERR-8)
			p.owe()
		}
		if p.number == len(g.planes)-1 { // one before it may stay as it is: the last one takes over
			g.hang(p, false)
			g.setDown(p, false)
		}
	}
	g.stir()
	waits := []time.Duration{time.Second, 31 * time.Second, time.Second, 16 * time.Second, 31 * time.Second, time.Second}
	if poisoned {
		waits = append(waits, 2*time.Minute)
	}
	if g.planes[0].down || g.planes[0].hung { // that is so for some time before another is turned to (UP-14)
		waits = append(waits, 2*time.Minute, time.Minute, time.Minute, time.Minute)
	}
	if g.planes[0].is(remembers) { // it is asked again ever more rarely (UP-19)
		waits = append(waits, 6*time.Minute, 6*time.Minute)
	}
	for _, d := range waits {
		for _, p := range g.everybody() {
			if !p.open {
				g.openStream(p, 0)
			}
		}
		g.act()
		g.rest()
		g.wait(d)
		g.act()
		g.rest()
		if g.failed() {
			return
		}
	}
	for range 5 { // a switch may be late: what the next stream is silent about goes after 30 s (RECON-12)
		if g.checker.now = g.relay.Now(); g.checker.now.Sub(g.opened) > missingExplicit+time.Second {
			break
		}
		g.wait(missingExplicit + 2*time.Second)
		g.act()
		g.rest()
	}
	if g.checker.Finish(g.inUse()); g.failed() {
		return
	}
	g.log("--- everybody leaves")
	for _, p := range g.everybody() {
		g.hangUp(p)
	}
	g.act()
	g.wait(100 * time.Second)
	g.checker.Finish(g.inUse())
}

// inUse is the world of the control plane that the relay has its streams to, if that answers, or else of the last one.
func (g *Game) inUse() World {
	for _, id := range g.open {
		if p, s := g.server(id); !s.probe && !p.hung {
			return p.world
		}
	}
	return g.planes[len(g.planes)-1].world
}

// rest lets the clients ACK until they have nothing left to ACK.
func (g *Game) rest() {
	for range 100 {
		busy := false
		for _, p := range g.everybody() {
			busy = g.ackAll(p) || busy
		}
		if !busy || g.failed() {
			return
		}
		g.relay.Settle()
		g.act()
	}
	g.checker.fail("quiet", "the clients do not come to rest")
}
