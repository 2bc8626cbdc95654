package twin

import "slices"

// How the relay ends, and begins again.

// save writes what the relay holds to its disk.
func (g *Game) save() {
	if g.snapshot {
		g.relay.Save()
	}
}

// restart ends the relay, which saves what it holds unless it is killed.
func (g *Game) restart(killed bool) {
	for _, p := range g.everybody() {
		g.hangUp(p)
	}
	for _, id := range slices.Clone(g.open) {
		g.StreamClosed(id, g.relay.Now())
	}
	if !killed {
		g.save()
	}
	g.checker.relayStarted()
	g.relay.Restart()
}
