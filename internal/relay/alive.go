package relay

import (
	"time"

	"github.com/xds-relay/xds-relay/internal/health"
	"github.com/xds-relay/xds-relay/upstream"
)

// How often the parts of the relay are asked for a sign of life, and how many rounds one
// may miss. With the usual probe (every 10 s, three failures) a relay that is stuck
// is restarted after about a minute. A busy machine is slow by seconds, not by half a
// minute.
const (
	aliveEvery  = 5 * time.Second
	aliveRounds = 6
)

// watchdog watches what all clients depend on, and only that: one client's stream that is
// stuck is no reason to end all others. Nothing in it waits for a control plane or for
// a client, so that neither can make the relay seem dead.
func (r *Relay) watchdog() *health.Watchdog {
	l := loops{groups: r.groups, turns: make(map[*upstream.Client]uint64)}
	return health.New(health.Options{
		Every: aliveEvery, Rounds: aliveRounds, Log: r.log,
		Parts: []health.Part{
			// Who sends to clients, and the lock under which streams come and go.
			{Name: "clients", Ask: r.server.Still},
			// The lock of the groups, and those under which resources are taken in and read.
			{Name: "groups", Ask: r.groups.touch},
			// The loops that open streams to control planes, and keep their time.
			{Name: "upstream", Ask: l.still},
		},
	})
}

// touch takes each lock of the groups and of their types once.
func (g *groups) touch() string {
	for _, hub := range g.hubs() {
		for _, t := range hub.Types() {
			hub.Of(t).Synced()
		}
	}
	return ""
}

// loops are those of the groups' Clients.
type loops struct {
	groups *groups
	turns  map[*upstream.Client]uint64 // when they were asked last
}

// still names a loop that has not turned since it was asked to.
func (l *loops) still() (still string) {
	now := make(map[*upstream.Client]uint64)
	for name, c := range l.groups.clients() {
		before, known := l.turns[c]
		now[c] = c.Nudge()
		if known && now[c] == before {
			still = "the loop of group " + name + " towards the control plane"
		}
	}
	l.turns = now
	return still
}

// Liveness says of each part of the relay whether it makes progress. It never
// depends on the control plane.
func (r *Relay) Liveness() []health.Check { return r.alive.Checks() }
