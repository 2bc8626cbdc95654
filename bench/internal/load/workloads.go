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

var clusters = world.Spec{Seed: seed, Clusters: 1000, ClusterBytes: 650, Changes: world.Cluster}

// Workloads are all of them.
var Workloads = []*Workload{{
	Name:  "fanout",
	Short: "W1: all clients have all clusters; one changes at a time",
	Defaults: Options{
		Clients: 1000, PerConn: 1, Rate: 10, ConnectRate: 500,
		Warmup: 3 * time.Second, Settle: 3 * time.Second, Duration: 15 * time.Second, World: clusters,
	},
	run: fanout,
}, {
	Name:  "named",
	Short: "W2: each client has 100 of 10,000 endpoint assignments by name; one changes at a time",
	Defaults: Options{
		Clients: 1000, PerConn: 1, Names: 100, Rate: 1000, ConnectRate: 500,
		Warmup: 2 * time.Second, Settle: 3 * time.Second, Duration: 15 * time.Second,
		World: world.Spec{Seed: seed, Assignments: 10000, Endpoints: 20, Changes: world.Endpoint},
	},
	run: named,
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
