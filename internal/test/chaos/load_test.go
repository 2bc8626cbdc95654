//go:build linux

package chaos

import (
	"math/rand/v2"
	"time"
)

// usual is the load of most targets: clusters that all clients ask for, of which one
// in 50 steps changes one, and endpoint assignments of which each client asks for
// 4, so that each of the other steps concerns 8 clients. One step in 20 removes
// something.
func usual() world {
	w := world{Seed: 1, Clusters: 50, Endpoints: 500, ClusterEvery: 50, Padding: 400, RemoveOneIn: 20}
	if !long() {
		w.Clusters, w.Endpoints = 10, 30
	}
	return w
}

const usualLoad = "50 clusters (wildcard, every client) of which 1 in 50 updates changes one, 500 endpoint assignments of 0.5 KiB (by name, 4 for each client, so that an update concerns 8 of 1000 clients); 1 in 20 updates removes; 10 % of the clients SotW, the rest Delta; the short form has 60 clients, 10 clusters, 30 assignments"

// thousand is the fleet of most targets in their long form, and a smaller one in
// their short form.
func thousand() fleetSize {
	if long() {
		return fleetSize{clients: 1000, sotw: 100, names: 4}
	}
	return fleetSize{clients: 60, sotw: 6, names: 4}
}

// between is a random time.
func between(a, b time.Duration) time.Duration { return a + rand.N(b-a) }

// span is how long something lasts: a third of it in the short form.
func span(d time.Duration) time.Duration {
	if long() {
		return d
	}
	return d / 3
}
