//go:build linux

package load

import (
	"time"

	"github.com/xds-relay/xds-relay/bench/internal/world"
)

// Workload is what can be run.
type Workload struct {
	Name     string
	Short    string
	Defaults Options
	run      func(*run) error
}

// seed is the seed unless another one is given.
const seed = 1

// The worlds of the workloads.
var (
	clusters    = world.Spec{Seed: seed, Clusters: 1000, ClusterBytes: 650, Changes: world.Cluster}
	assignments = world.Spec{Seed: seed, Assignments: 10000, Endpoints: 20, Changes: world.Endpoint}
	small       = world.Spec{Seed: seed, Assignments: 10000, Endpoints: 1, Changes: world.Endpoint}
	both        = world.Spec{Seed: seed, Clusters: 1000, ClusterBytes: 650, Assignments: 10000, Endpoints: 20, Changes: world.Cluster}
)

// Workloads are all of them.
var Workloads = []*Workload{{
	Name:  "fanout",
	Short: "W1: all clients have all clusters; one changes at a time",
	Defaults: Options{
		Clients: 1000, Rate: 10, ConnectRate: 500,
		Warmup: 3 * time.Second, Settle: 3 * time.Second, Duration: 15 * time.Second, World: clusters,
	},
	run: fanout,
}, {
	Name:  "named",
	Short: "W2: each client has some endpoint assignments by name; one of all changes at a time",
	Defaults: Options{
		Clients: 1000, Names: 100, Rate: 1000, ConnectRate: 500,
		Warmup: 2 * time.Second, Settle: 3 * time.Second, Duration: 15 * time.Second, World: assignments,
	},
	run: named,
}, {
	Name:     "herd",
	Short:    "W3: all clients connect at once, and get everything",
	Defaults: Options{Clients: 1000, Settle: 3 * time.Second, World: clusters},
	run:      herd,
}, {
	Name:     "herd-named",
	Short:    "W3: all clients connect at once, each for some endpoint assignments by name",
	Defaults: Options{Clients: 1000, Names: 100, Settle: 3 * time.Second, World: assignments},
	run:      herdNamed,
}, {
	Name:     "reconnect",
	Short:    "W4: all clients come back at once, and have everything",
	Defaults: Options{Clients: 1000, World: clusters},
	run:      reconnect,
}, {
	Name:     "memory",
	Short:    "W5: what an idle client costs",
	Defaults: Options{Clients: 1000, ConnectRate: 200, Settle: 10 * time.Second, World: clusters},
	run:      memory,
}, {
	Name:     "names",
	Short:    "W5: what each name costs that a client subscribed to",
	Defaults: Options{Clients: 1000, Names: 10000, ConnectRate: 100, Settle: 5 * time.Second, World: small},
	run:      names,
}, {
	Name:  "sotw",
	Short: "full-state SotW clients of all clusters; each change sends them all",
	Defaults: Options{
		Clients: 100, SotW: 100, Rate: 1, ConnectRate: 100,
		Warmup: 3 * time.Second, Settle: 3 * time.Second, Duration: 20 * time.Second, World: clusters,
	},
	run: fanout,
}, {
	Name:  "mixed",
	Short: "half of the clients Delta, half SotW, each with all clusters and some assignments; one cluster changes at a time",
	Defaults: Options{
		Clients: 2000, SotW: 1000, Names: 100, Rate: 0.2, ConnectRate: 100,
		Warmup: 5 * time.Second, Settle: 3 * time.Second, Duration: 60 * time.Second, World: both,
	},
	run: mixed,
}, {
	Name:  "soak",
	Short: "fanout for long, while other clients come and go; how fast the server grows",
	Defaults: Options{
		Clients: 5000, Rate: 1, ConnectRate: 500, Churn: 50,
		Warmup: 10 * time.Second, Settle: 5 * time.Second, Duration: 30 * time.Minute, World: clusters,
	},
	run: soak,
}}

// Find is the workload of a name.
func Find(name string) *Workload {
	for _, w := range Workloads {
		if w.Name == name {
			return w
		}
	}
	return nil
}
