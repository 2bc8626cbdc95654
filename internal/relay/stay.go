package relay

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xds-relay/xds-relay/internal/snapshot"
)

// How long a group without clients stays (NODE-10), and which clients are refused because
// of it.

// retire ends a group that has lingered for long enough, as soon as its stream turns out
// to be alive. In an outage the group stays: its clients may be back before the control
// plane is, and nobody else has their resources (G8).
func (g *groups) retire(gr *group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if gr.users == 0 && g.byName[gr.name] == gr && !g.closing {
		gr.leaving = true
		gr.client.Retire(g.Stays(gr.place.Name))
	}
}

// retired ends a group whose stream is alive, unless somebody has come meanwhile.
func (g *groups) retired(gr *group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if gr.leaving && g.byName[gr.name] == gr && !g.closing {
		g.end(gr)
	}
}

// taken is the number of groups that count against the limit for a new one. Loaded groups
// to which no client has come back count while no control plane answers.
func (g *groups) taken(p Place) int {
	n := g.sources[p.source].groups
	if p.Name == "" || len(g.saved) == 0 {
		return n
	}
	if _, loaded := g.saved[p.groupName()]; loaded || g.reached() {
		return n
	}
	for name := range g.saved {
		if isOf := strings.HasPrefix(name, byTypePrefix); isOf == (p.source > 0) && strings.HasPrefix(name, p.prefix()) {
			n++
		}
	}
	return n
}

// reached: the control plane is there, as far as some group can tell.
func (g *groups) reached() bool {
	for _, gr := range g.byName {
		if gr.client.Proven() {
			return true
		}
	}
	return false
}

// unclaimed are the loaded groups to which no client has come back, without those that
// are too old; in an outage none is.
func (g *groups) unclaimed(now time.Time) []snapshot.Group {
	g.forget(now)
	return slices.Concat(slices.Collect(maps.Values(g.saved))...)
}

// forget gives up what was loaded and nobody wants, while the control plane is there: the groups that are
// too old, which would cost memory, and in the next outage the room of new groups; and at once what was
// unwanted already, which stays on disk.
func (g *groups) forget(now time.Time) {
	if len(g.saved)+len(g.shelved) == 0 || !g.reached() {
		return
	}
	g.shelved = nil
	keep := max(g.live.Cache.Snapshot.KeepUnwanted, g.live.Timers.GroupLinger)
	for name, parts := range g.saved {
		parts = slices.DeleteFunc(parts, func(s snapshot.Group) bool { return now.Sub(s.Saved) >= keep })
		if g.saved[name] = parts; len(parts) == 0 {
			delete(g.saved, name)
		}
	}
}
