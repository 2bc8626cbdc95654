package envoygateway

import (
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/e2e/realenvoy"
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
		wait(outage)
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
// and nothing else.
func TestGateway_RelayKilled(t *testing.T) {
	w := newWorld(t, "eg")
	w.backends["blue"] = realenvoy.Backend(t, "blue")
	g := startGateway(t, w)
	r := startRelay(t, g)
	e := startEnvoy(t, g, "eg", r.listen)
	e.WaitReady(patience)
	address := w.Address("eg")
	arrives(t, address, "/", "eg")
	load := realenvoy.Drive(t, address, rate)
	for range 3 {
		r.Kill()
		wait(outage)
		w.routes = append(w.routes[:1:1], route{name: "more", gateway: "eg", prefix: "/more", to: "blue"})
		g.Apply(w)
		r.Start()
		arrives(t, address, "/more", "blue")
		w.routes = w.routes[:1]
		g.Apply(w)
		arrives(t, address, "/more", "eg")
	}
	unharmed(t, load)
}
