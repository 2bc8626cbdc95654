package consul

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// TestBoot: two Envoys, each with a node of its own, get their configuration through
// one relay, and calls pass from one to the other.
func TestBoot(t *testing.T) {
	m := startMesh(t)
	r := startRelay(t, m.grpc)
	web, api := m.sidecars(r.Addr)
	for name, e := range map[string]*realenvoy.Envoy{"web": web, "api": api} {
		d := dump(t, e)
		t.Logf("%s: clusters %v, listeners %v, routes %v", name, names(d.Clusters), names(d.Listeners), names(d.Routes))
		if _, ok := d.Listeners[publicListener(d)]; !ok {
			t.Errorf("the sidecar of %s has no public listener: %v", name, names(d.Listeners))
		}
	}
	if d := dump(t, api); len(d.Routes) > 0 && d.Routes["api"].Version != "" {
		t.Errorf("the sidecar of api has the route of web: %v", names(d.Routes))
	}
	if n := r.Metrics().Sum("xds_relay_groups"); n != 2 {
		t.Errorf("%v groups for two nodes", n)
	}
}

func dump(t testing.TB, e *realenvoy.Envoy) *realenvoy.Dump {
	t.Helper()
	d, err := e.Dump()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func names(resources map[string]realenvoy.Resource) (short []string) {
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		short = append(short, shortName(name))
	}
	return short
}

// publicListener is the name of the listener that takes the mesh's calls.
func publicListener(d *realenvoy.Dump) string {
	for name := range d.Listeners {
		if shortName(name) == "public_listener" {
			return name
		}
	}
	return ""
}

// change is something that an operator does, and what of it is seen at an Envoy.
type change struct {
	what string
	do   func(m *mesh)
	seen func(m *mesh, web, api *realenvoy.Envoy) error
}

var changes = []change{{
	"a second instance of api", // EDS
	func(m *mesh) {
		m.instance("api", "api-2")
		m.put("/v1/agent/service/maintenance/api-2?enable=false", nil)
	},
	func(_ *mesh, web, _ *realenvoy.Envoy) error {
		d, err := web.Dump()
		return first(err, func() error { return hasNot(d.Endpoints, "api", "UNHEALTHY") }, func() error { return endpoints(web, "api", 2) })
	},
}, {
	"a longer timeout for connections to api", // CDS of web
	func(m *mesh) { m.entry("service-resolver", "api", settings{"ConnectTimeout": "7s"}) },
	func(_ *mesh, web, _ *realenvoy.Envoy) error {
		d, err := web.Dump()
		return first(err, func() error { return has(d.Clusters, "api", `"7s"`) })
	},
}, {
	"a timeout of its own for some calls of api", // RDS of web
	func(m *mesh) {
		m.entry("service-router", "api", settings{"Routes": []settings{{
			"Match":       settings{"HTTP": settings{"PathPrefix": "/slow"}},
			"Destination": settings{"Service": "api", "RequestTimeout": "77s"},
		}}})
	},
	func(_ *mesh, web, _ *realenvoy.Envoy) error {
		d, err := web.Dump()
		return first(err, func() error { return has(d.Routes, "api", `"77s"`) })
	},
}, {
	"an intention that forbids somebody else", // LDS of api
	func(m *mesh) {
		m.entry("service-intentions", "api", settings{"Sources": []settings{{"Name": "mallory", "Action": "deny"}}})
	},
	func(_ *mesh, _, api *realenvoy.Envoy) error {
		d, err := api.Dump()
		return first(err, func() error { return has(d.Listeners, "public_listener", "mallory") })
	},
}, {
	// (Consul 1.20 tells nobody that an instance without a sidecar was deregistered.)
	"the second instance of api goes into maintenance", // EDS
	func(m *mesh) { m.put("/v1/agent/service/maintenance/api-2?enable=true", nil) },
	func(_ *mesh, web, _ *realenvoy.Envoy) error {
		d, err := web.Dump()
		return first(err, func() error {
			if has(d.Endpoints, "api", "UNHEALTHY") == nil {
				return nil
			}
			return endpoints(web, "api", 1)
		})
	},
}, {
	"a second upstream of web", // LDS, CDS and EDS of web
	func(m *mesh) { m.addNative("other"); m.upstreams(map[string]int{"api": m.web, "other": m.other}) },
	func(m *mesh, _, _ *realenvoy.Envoy) error {
		answer, failure := realenvoy.Get(peer.Local(m.other))
		if answer != "other" {
			return fmt.Errorf("web's call of other: %q, %s", answer, failure)
		}
		return nil
	},
}, {
	"the second upstream goes", // LDS, CDS
	func(m *mesh) { m.upstreams(map[string]int{"api": m.web}) },
	func(_ *mesh, web, _ *realenvoy.Envoy) error {
		d, err := web.Dump()
		return first(err, func() error {
			if all := append(names(d.Clusters), names(d.Listeners)...); slices.Contains(all, "other") {
				return fmt.Errorf("web still has %v", all)
			}
			return nil
		})
	},
}, {
	"the timeouts and the intention go", // as they came
	func(m *mesh) {
		m.forget("service-router", "api")
		m.forget("service-resolver", "api")
		m.forget("service-intentions", "api")
	},
	func(_ *mesh, web, api *realenvoy.Envoy) error {
		w, err := web.Dump()
		if err != nil {
			return err
		}
		a, err := api.Dump()
		return first(err, func() error { return hasNot(w.Routes, "api", `"77s"`) }, func() error { return hasNot(a.Listeners, "public_listener", "mallory") })
	},
}}

func first(err error, more ...func() error) error {
	for _, f := range more {
		if err != nil {
			return err
		}
		err = f()
	}
	return err
}

// has complains unless a resource contains a text.
func has(resources map[string]realenvoy.Resource, name, text string) error {
	for full, r := range resources {
		if shortName(full) == name && strings.Contains(string(r.Body), text) {
			return nil
		}
	}
	return fmt.Errorf("%s does not contain %s", name, text)
}

func hasNot(resources map[string]realenvoy.Resource, name, text string) error {
	if has(resources, name, text) == nil {
		return fmt.Errorf("%s still contains %s", name, text)
	}
	return nil
}

// endpoints complains unless a cluster has so many.
func endpoints(e *realenvoy.Envoy, cluster string, want int) error {
	clusters, err := e.Clusters()
	if err != nil {
		return err
	}
	for name, hosts := range clusters {
		if shortName(name) == cluster && len(hosts) == want {
			return nil
		}
	}
	return fmt.Errorf("%s has not %d endpoints: %v", cluster, want, clusters)
}

// What operators change arrives, and no request fails.
func TestChanges_Direct(t *testing.T) { playChanges(t, false) }
func TestChanges_Relay(t *testing.T)  { playChanges(t, true) }

func playChanges(t *testing.T, relayed bool) {
	m := startMesh(t)
	xds := m.grpc
	if relayed {
		xds = startRelay(t, xds).Addr
	}
	web, api := m.sidecars(xds)
	load := m.load()
	for round := range 3 {
		for _, c := range changes {
			before := load.Count().Failed()
			c.do(m)
			took := eventually(t, func() error { return c.seen(m, web, api) })
			peer.Wait(200 * time.Millisecond)
			t.Logf("round %d, %s: after %v; %d requests failed", round+1, c.what, took.Round(time.Millisecond), load.Count().Failed()-before)
		}
	}
	quiet(t, load, web)
}

// TestRotation: Consul's certificate authority gets a new root; both sidecars show and
// accept certificates of it, and no request fails.
func TestRotation(t *testing.T) {
	m := startMesh(t)
	r := startRelay(t, m.grpc)
	web, _ := m.sidecars(r.Addr)
	before := m.shown("api")
	load := m.load()
	m.put("/v1/connect/ca/configuration", settings{
		"Provider": "consul", "Config": settings{"PrivateKeyType": "ec", "PrivateKeyBits": 384},
	})
	took := peer.Eventually(t, 3*time.Minute, func() error {
		now := m.shown("api")
		if now.issuer == before.issuer {
			return fmt.Errorf("the sidecar of api still shows %v", now)
		}
		if now := m.shown("web"); now.issuer == before.issuer {
			return fmt.Errorf("the sidecar of web still shows %v", now)
		}
		return nil
	})
	t.Logf("both have certificates of the new root after %v", took.Round(time.Second))
	peer.Wait(time.Second)
	m.answers("api")
	quiet(t, load, web)
}

// While Consul is away, and when it is back, no request fails, and
// what was changed then arrives. Without the relay, Envoys lose listeners when Consul is
// back, because it shows less for some time.
func TestConsulIsKilled_Direct(t *testing.T) { consulKilled(t, false) }
func TestConsulIsKilled_Relay(t *testing.T)  { consulKilled(t, true) }

func consulKilled(t *testing.T, relayed bool) {
	m := startMesh(t)
	xds := m.grpc
	var r *relay
	if relayed {
		r = startRelay(t, xds)
		xds = r.Addr
	}
	m.addNative("v1")
	m.addNative("v2")
	web, _ := m.sidecars(xds)
	load := m.load()
	for _, service := range []string{"v1", "v2"} {
		before := load.Count().Failed()
		m.Kill()
		peer.Wait(3 * time.Second)
		m.Start()
		m.split(service)
		took := eventually(t, func() error {
			if got := load.Last(); got != service {
				return fmt.Errorf("the route leads to %q, not yet to %q", got, service)
			}
			return nil
		})
		peer.Wait(5 * time.Second)
		t.Logf("the route leads to %s %v after Consul was back; %d requests failed", service, took.Round(time.Millisecond), load.Count().Failed()-before)
	}
	if relayed {
		quiet(t, load, web)
		return
	}
	t.Logf("direct: %v", load.Stop())
}

// TestRelayIsKilled: while the relay is away, and when it is back, no request fails, and
// nothing is sent again to an Envoy that has it; what was changed meanwhile arrives. Also
// where Consul is far away, so that the route comes long after the Cluster it needs.
func TestRelayIsKilled(t *testing.T)         { relayKilled(t, 0) }
func TestRelayIsKilled_FarAway(t *testing.T) { relayKilled(t, farAway) }

// farAway is more than half of what an initial set takes to settle.
const farAway = 150 * time.Millisecond

func relayKilled(t *testing.T, delay time.Duration) {
	m := startMesh(t)
	xds := m.grpc
	if delay > 0 {
		xds = startTap(t, xds, delay).Addr
	}
	r := startRelay(t, xds)
	m.addNative("v1")
	m.addNative("v2")
	web, api := m.sidecars(r.Addr)
	load := m.load()

	held := updates(t, web, api)
	r.Kill()
	peer.Wait(time.Second)
	r.Start()
	eventually(t, func() error { return connected(web, api) })
	peer.Wait(3 * time.Second)
	if now := updates(t, web, api); !maps.Equal(now, held) {
		t.Errorf("resources were sent again: they were of %v, and are of %v", held, now)
	}

	for _, service := range []string{"v1", "v2"} {
		r.Kill()
		m.split(service)
		peer.Wait(time.Second)
		r.Start()
		m.answers(service)
		peer.Wait(time.Second)
	}
	quiet(t, load, web)
}

// updates are the times at which the Envoys took in what they have.
func updates(t testing.TB, envoys ...*realenvoy.Envoy) map[string]time.Time {
	t.Helper()
	all := make(map[string]time.Time)
	for i, e := range envoys {
		d := dump(t, e)
		for kind, resources := range map[string]map[string]realenvoy.Resource{"CDS": d.Clusters, "LDS": d.Listeners, "RDS": d.Routes} {
			for name, r := range resources {
				all[fmt.Sprintf("%d %s %s", i, kind, name)] = r.Updated
			}
		}
	}
	return all
}

// connected complains until the Envoys have a stream to their xDS server.
func connected(envoys ...*realenvoy.Envoy) error {
	for _, e := range envoys {
		stats, err := e.Stats(`control_plane\.connected_state`)
		if err != nil {
			return err
		}
		for name, n := range stats {
			if n != 1 {
				return fmt.Errorf("%s is %d", name, n)
			}
		}
	}
	return nil
}

// TestOutage: Consul is away, the relay is killed and started, and Envoys are, too: they
// become ready with what the relay had on disk, certificates and keys included.
func TestOutage(t *testing.T) {
	m := startMesh(t)
	r := startRelay(t, m.grpc)
	web, api := m.sidecars(r.Addr)
	b := map[string]realenvoy.Bootstrap{}
	for _, service := range []string{"web", "api"} {
		b[service] = bootstrapOf(t, m, service, "", r.Addr)
	}
	eventually(t, func() error { // the snapshot is written within 5 s
		if r.Metrics().Sum("xds_relay_snapshot_writes_total") == 0 {
			return fmt.Errorf("no snapshot yet")
		}
		return nil
	})
	peer.Wait(6 * time.Second)
	if text := r.state(); strings.Contains(text, "PRIVATE KEY") {
		t.Error("the snapshot has private keys in it, in plain text")
	}
	m.Kill()
	r.Kill()
	web.Kill()
	api.Kill()
	r.Start()
	for service, boot := range b {
		e := realenvoy.Start(t, boot, realenvoy.Options{Name: service})
		t.Logf("%s is ready after %v", service, e.WaitReady(10*time.Second).Round(time.Millisecond))
	}
	m.answers("api")
	m.Start()
	m.addNative("v1")
	m.split("v1")
	m.answers("v1")
}
