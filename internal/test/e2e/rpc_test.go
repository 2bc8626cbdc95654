package e2e

import (
	"errors"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
)

var errStillServes = errors.New("the server still serves")

// grpc-go's own xDS client makes real RPCs through what the relay gives it, and
// follows a change of the route, of the endpoints and of the listener.
func TestGRPCClientFollowsItsRoute(t *testing.T) {
	t.Parallel()
	blue, green := startBackend(t, "blue"), startBackend(t, "green")
	w := newLinear(t)
	w.service("shop", blue)
	w.Set(cache.Cluster, "green-cluster", edsCluster("green-cluster", 1))
	w.Set(cache.Endpoint, "green-cluster", endpoints("green-cluster", 1, green))
	cp := startControlPlane(t, w.Mux())
	r := startRelay(t, cp.addr)
	a := startApp(t, r.addr, "app-1", "shop")
	eventually(t, patience, func() error { return a.Reaches("blue") })

	w.Set(cache.Route, "shop-route", routeTo("shop-route", 2, "green-cluster"))
	took := eventually(t, patience, func() error { return a.Reaches("green") })
	t.Logf("the route change was followed after %v", took)

	w.Set(cache.Endpoint, "green-cluster", endpoints("green-cluster", 2, blue))
	eventually(t, patience, func() error { return a.Reaches("blue") })

	w.Set(cache.Route, "other-route", routeTo("other-route", 1, "shop-cluster"))
	w.Set(cache.Endpoint, "shop-cluster", endpoints("shop-cluster", 2, green))
	w.Set(cache.Listener, "shop", apiListener("shop", 2, "other-route"))
	eventually(t, patience, func() error { return a.Reaches("green") })

	// All of it by name, on one stream.
	if err := first(cp.deltaADSOnly(), is("streams upstream", cp.Most(), 1)); err != nil {
		t.Fatal(err)
	}
}

// RPCs go on while the control plane is away, and follow it when it is back.
func TestGRPCClientOutlivesTheControlPlane(t *testing.T) {
	t.Parallel()
	blue, green := startBackend(t, "blue"), startBackend(t, "green")
	w := newLinear(t)
	w.service("shop", blue)
	cp := startControlPlane(t, w.Mux())
	r := startRelay(t, cp.addr, quickBackoff...)
	a := startApp(t, r.addr, "app-1", "shop")
	eventually(t, patience, func() error { return a.Reaches("blue") })

	cp.Stop()
	w.Set(cache.Endpoint, "shop-cluster", endpoints("shop-cluster", 2, green))
	for range 20 {
		if err := a.Reaches("blue"); err != nil {
			t.Fatal(err)
		}
	}
	// A newcomer is served from what the relay has (ERR-6).
	b := startApp(t, r.addr, "app-2", "shop")
	eventually(t, patience, func() error { return b.Reaches("blue") })

	cp.Start()
	eventually(t, patience, func() error { return first(a.Reaches("green"), b.Reaches("green")) })
}

// An xDS-enabled gRPC server gets its listener through the relay, serves while it
// has one, and a gRPC client finds it.
func TestGRPCServerGetsItsListener(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	cp := startControlPlane(t, w.Mux())
	r := startRelay(t, cp.addr)
	s := startXDSServer(t, r.addr, "server-1", "green")
	name := serverListenerPrefix + s.addr
	eventually(t, patience, func() error { return cp.subscribes(cache.Listener, name) })
	if err := s.Serves(); err == nil {
		t.Fatal("the server serves without a listener")
	}
	w.Set(cache.Route, "server-route", serverRoutes("server-route"))
	w.Set(cache.Listener, name, serverListener(name, s.addr, "server-route"))
	eventually(t, patience, s.Serves)

	w.service("shop", s.addr)
	a := startApp(t, r.addr, "app-1", "shop")
	eventually(t, patience, func() error { return a.Reaches("green") })

	// What is removed at the control plane is removed here (MISS-10).
	w.Delete(cache.Listener, name)
	eventually(t, patience, func() error {
		if s.Serves() == nil {
			return errStillServes
		}
		return nil
	})
	if who, err := callDirectly(t, s.addr); err == nil {
		t.Fatalf("%s answers although its listener is gone", who)
	}
	w.Set(cache.Listener, name, serverListener(name, s.addr, "server-route"))
	eventually(t, patience, s.Serves)
}
