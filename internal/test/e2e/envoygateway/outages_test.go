package envoygateway

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// outage is for how long somebody is away.
const outage = 5 * time.Second

// Envoy Gateway is killed. Envoys serve, and one that starts meanwhile is served, too.
// What changes meanwhile arrives when it is back: a route more, another one less.
func TestGateway_Killed(t *testing.T) {
	w := newWorld(t, "eg", "other")
	w.backends["blue"] = realenvoy.Backend(t, "blue")
	w.routes = append(w.routes, route{name: "less", gateway: "eg", prefix: "/less", to: "blue"})
	g := startGateway(t, w)
	r := startRelay(t, g)
	startEnvoy(t, g, "eg", r.listen).WaitReady(patience)
	other := startEnvoy(t, g, "other", r.listen)
	other.WaitReady(patience)
	address := w.Address("eg")
	arrives(t, address, "/less", "blue")
	load := realenvoy.Drive(t, address, rate)
	for range 3 {
		g.Kill()
		peer.Wait(outage)
		other.Kill()
		other = startEnvoy(t, g, "other", r.listen)
		t.Logf("in the outage, an Envoy was ready after %v", other.WaitReady(patience))
		arrives(t, w.Address("other"), "/", "other")

		w.routes = append(w.routes[:2:2], route{name: "more", gateway: "eg", prefix: "/more", to: "blue"})
		g.Apply(w)
		g.Start()
		arrives(t, address, "/more", "blue")
		arrives(t, address, "/less", "eg")
		w.routes = append(w.routes[:2:2], route{name: "less", gateway: "eg", prefix: "/less", to: "blue"})
		g.Apply(w)
		arrives(t, address, "/less", "blue")
		arrives(t, address, "/more", "eg")
	}
	unharmed(t, load)
}

// The relay is killed. Envoys serve, and when it is back they are sent what has changed
// meanwhile, and nothing else.
func TestGateway_RelayKilled(t *testing.T) {
	w := newWorld(t, "eg")
	w.backends["blue"] = realenvoy.Backend(t, "blue")
	g := startGateway(t, w)
	r := startRelay(t, g)
	below := startTap(t, g, r.listen)
	startEnvoy(t, g, "eg", below.Addr).WaitReady(patience)
	address := w.Address("eg")
	arrives(t, address, "/", "eg")
	load := realenvoy.Drive(t, address, rate)
	for range 3 {
		r.Kill()
		peer.Wait(outage)
		w.routes = append(w.routes[:1:1], route{name: "more", gateway: "eg", prefix: "/more", to: "blue"})
		g.Apply(w)
		below.Lines()
		below.Sent()
		r.Start()
		arrives(t, address, "/more", "blue")
		peer.Wait(quiet)
		// The listener is another one each time, as TestGateway_OnTheWire has it.
		want := map[string]int{
			"CDS httproute/default/more/rule/0": 1, "EDS httproute/default/more/rule/0": 1,
			"LDS default/eg/http": 1, "RDS default/eg/http": 1,
		}
		if sent := below.Sent(); !maps.Equal(sent, want) {
			t.Errorf("after the relay was away it sent %v, not %v:\n%s", sent, want, below.Lines())
		}
		w.routes = w.routes[:1]
		g.Apply(w)
		arrives(t, address, "/more", "eg")
	}
	unharmed(t, load)
}

// Envoy Gateway closes its connections when they are old, by default after ten hours and
// more. The relay comes back with what it has, and Envoys notice nothing.
func TestGateway_ConnectionAge(t *testing.T) {
	w := newWorld(t, "eg")
	w.secure, w.pair = freePort(t), newPair(t)
	g := startGateway(t, w, func(config object) {
		config["xdsServer"] = object{"maxConnectionAge": "3s", "maxConnectionAgeGrace": "1s"}
	})
	r := startRelay(t, g, "log.level=debug")
	below := startTap(t, g, r.listen)
	startEnvoy(t, g, "eg", below.Addr).WaitReady(patience)
	address := w.Address("eg")
	arrives(t, address, "/", "eg")
	shows(t, peer.Local(w.secure), w.pair)
	load := realenvoy.Drive(t, address, rate)
	below.Sent()
	peer.Eventually(t, patience, func() error {
		// One for the Gateway and one for its Secrets, three times.
		if ended := len(r.Output.Lines("upstream stream ended")); ended < 6 {
			return fmt.Errorf("%d upstream streams have ended", ended)
		}
		return nil
	})
	peer.Wait(quiet)
	if sent := below.Sent(); len(sent) > 0 {
		t.Errorf("the Envoy was sent %v:\n%s", sent, below.Lines())
	}
	w.backends["late"] = realenvoy.Backend(t, "late")
	w.routes = append(w.routes, route{name: "late", gateway: "eg", prefix: "/late", to: "late"})
	g.Apply(w)
	arrives(t, address, "/late", "late")
	unharmed(t, load)
}

// quiet is for how long a test listens whether anything more comes.
const quiet = time.Second

// While somebody is away, the route that all requests take is replaced by another, with
// another cluster. When it is back, the Envoy has always had one of the two.
func TestGateway_TurnInAnOutage(t *testing.T) {
	for name, away := range map[string]func(*gateway, *relay) (back func()){
		"Relay":        func(_ *gateway, r *relay) func() { r.Kill(); return func() { r.Start() } },
		"EnvoyGateway": func(g *gateway, _ *relay) func() { g.Kill(); return g.Start },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "eg")
			g := startGateway(t, w)
			r := startRelay(t, g)
			below := startTap(t, g, r.listen)
			startEnvoy(t, g, "eg", below.Addr).WaitReady(patience)
			address := w.Address("eg")
			arrives(t, address, "/", "eg")
			load := realenvoy.Drive(t, address, rate)
			failed := 0
			for turn := range 5 {
				backend := fmt.Sprintf("backend-%d", turn)
				w.backends[backend] = realenvoy.Backend(t, backend)
				w.routes = []route{{name: fmt.Sprintf("turn-%d", turn), gateway: "eg", prefix: "/", to: backend}}
				back := away(g, r)
				peer.Wait(time.Second)
				g.Apply(w)
				peer.Wait(quiet)
				below.Lines()
				back()
				arrives(t, address, "/", backend)
				if n := load.Count().Failed(); n > failed {
					t.Errorf("turn %d: %d requests failed\nbelow the relay:\n%s", turn, n-failed, below.Lines())
					failed = n
				}
			}
			unharmed(t, load)
		})
	}
}
