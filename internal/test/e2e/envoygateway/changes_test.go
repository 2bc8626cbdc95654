package envoygateway

import (
	"fmt"
	"testing"

	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// rate is how many requests a second go through an Envoy while its configuration
// changes.
const rate = 300

// An HTTPRoute more, one changed and one less, each under load.
func TestGateway_RouteChanges(t *testing.T) {
	w := newWorld(t, "eg")
	w.backends["blue"] = realenvoy.Backend(t, "blue")
	w.backends["green"] = realenvoy.Backend(t, "green")
	g := startGateway(t, w)
	r := startRelay(t, g)
	startEnvoy(t, g, "eg", r.listen).WaitReady(patience)
	address := w.Address("eg")
	load := realenvoy.Drive(t, address, rate)
	own := w.routes
	for turn := range 10 {
		path := fmt.Sprintf("/%d", turn)
		w.routes = append(own[:1:1], route{name: "more", gateway: "eg", prefix: path, to: "blue"})
		g.Apply(w)
		arrives(t, address, path, "blue")
		w.routes[1].to = "green"
		g.Apply(w)
		arrives(t, address, path, "green")
		w.routes = own
		g.Apply(w)
		arrives(t, address, path, "eg")
	}
	unharmed(t, load)
}

// turns is how often a route is turned to another backend.
const turns = 30

// The route that all requests take is turned to another backend, in two ways. An
// HTTPRoute that names another backend keeps its cluster, which gets other endpoints.
// An HTTPRoute in place of another brings a cluster of its own, and takes the old one
// along: a cluster that nobody has when the route begins to use it.
func TestGateway_Turns(t *testing.T) {
	for _, way := range []struct {
		name string
		next func(turn int) string // of the HTTPRoute
	}{
		{"Backend", func(int) string { return "turn" }},
		{"Route", func(turn int) string { return fmt.Sprintf("turn-%d", turn) }},
	} {
		t.Run(way.name, func(t *testing.T) {
			w := newWorld(t, "eg")
			for turn := range turns {
				name := fmt.Sprintf("backend-%d", turn)
				w.backends[name] = realenvoy.Backend(t, name)
			}
			to := func(turn int) {
				w.routes = []route{{name: way.next(turn), gateway: "eg", prefix: "/", to: fmt.Sprintf("backend-%d", turn)}}
			}
			to(0)
			g := startGateway(t, w)
			above := startTap(t, g, "127.0.0.1:"+xdsPort)
			r := startRelayBelow(t, g, above.Addr)
			below := startTap(t, g, r.listen)
			e := startEnvoy(t, g, "eg", below.Addr)
			e.WaitReady(patience)
			arrives(t, w.Address("eg"), "/", "backend-0")
			load := realenvoy.Drive(t, w.Address("eg"), rate)
			failed := 0
			for turn := 1; turn < turns; turn++ {
				above.Lines()
				below.Lines()
				to(turn)
				g.Apply(w)
				arrives(t, w.Address("eg"), "/", fmt.Sprintf("backend-%d", turn))
				if n := load.Count().Failed(); n > failed {
					t.Errorf("turn %d: %d requests failed\nabove the relay:\n%s\nbelow:\n%s", turn, n-failed, above.Lines(), below.Lines())
					failed = n
				}
			}
			unharmed(t, load)
			// It has what it should and no more: what went is gone.
			peer.Eventually(t, patience, func() error {
				clusters, err := e.Clusters()
				if err != nil {
					return err
				}
				if len(clusters) != 2 { // that of the route, and the relay
					return fmt.Errorf("it has the clusters %v", clusters)
				}
				return nil
			})
		})
	}
}
