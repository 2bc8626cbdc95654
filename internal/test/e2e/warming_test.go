package e2e

import (
	"fmt"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// An Envoy warms each changed cluster until its endpoints have come after it, and
// withholds the ACK of the clusters until then. It must not wait in vain, whether
// it asks for the endpoints again or relies on getting them (ORDER-4, H-15).
func TestEnvoyWarmsItsClusters(t *testing.T) {
	for _, silent := range []bool{true, false} {
		t.Run(fmt.Sprintf("silent=%v", silent), func(t *testing.T) {
			t.Parallel()
			w := newLinear(t)
			for _, name := range []string{"a", "b", "c"} {
				w.service(name, "127.0.0.1:1")
			}
			cp := startControlPlane(t, w.Mux())
			// Long enough that a test which needs it fails.
			r := startRelay(t, cp.addr, "timers.ack_timeout=60s")
			e := startEnvoy(t, r.addr, "envoy", func(e *envoy) { e.withhold, e.silent = true, silent })
			eventually(t, patience, func() error {
				return first(e.Has(cache.Endpoint, "a-cluster", "b-cluster", "c-cluster"), e.Warm(3), e.Has(cache.Route, "a-route", "b-route", "c-route"))
			})
			// The cluster changes; its endpoints do not.
			for i := 2; i <= 6; i++ {
				w.Set(cache.Cluster, "a-cluster", edsCluster("a-cluster", i))
				eventually(t, patience, func() error { return first(e.AtLeast(cache.Cluster, "a-cluster", i), e.Warm(2+i)) })
			}
			// A cluster whose endpoints come only later is warm only then, and holds
			// up neither the endpoints nor, once it is, the clusters.
			w.Set(cache.Cluster, "d-cluster", edsCluster("d-cluster", 1))
			eventually(t, patience, func() error {
				return first(e.Has(cache.Cluster, "a-cluster", "b-cluster", "c-cluster", "d-cluster"), cp.subscribes(cache.Endpoint, "d-cluster"))
			})
			w.Set(cache.Cluster, "b-cluster", edsCluster("b-cluster", 2))
			w.Set(cache.Endpoint, "c-cluster", endpoints("c-cluster", 2, "127.0.0.1:2"))
			eventually(t, patience, func() error { return e.AtLeast(cache.Endpoint, "c-cluster", 2) })
			if e.AtLeast(cache.Cluster, "b-cluster", 2) == nil {
				t.Fatal("clusters were pushed while the ACK of others was withheld")
			}
			w.Set(cache.Endpoint, "d-cluster", endpoints("d-cluster", 1, "127.0.0.1:1"))
			eventually(t, patience, func() error { return first(e.AtLeast(cache.Cluster, "b-cluster", 2), e.Warm(10)) })
			if err := e.Sound(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A client's NACK changes nothing for others, is not answered by the same again,
// and does not keep the next change away (NACK-3 to NACK-5).
func TestEnvoyNacks(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	cp := startControlPlane(t, w.Mux())
	r := startRelay(t, cp.addr)
	good := startEnvoy(t, r.addr, "good", nil)
	bad := startEnvoy(t, r.addr, "bad", func(e *envoy) {
		e.silent = true // what it asks for again would come again
		e.reject = func(resp *discovery.DeltaDiscoveryResponse) string {
			for _, res := range resp.GetResources() {
				if n, err := revisionOf(cache.TypeURL(resp.GetTypeUrl()), res.GetResource().GetValue()); err == nil && n == 2 {
					return "revision 2 is not to my taste"
				}
			}
			return ""
		}
	})
	eventually(t, patience, func() error {
		return first(good.Has(cache.Endpoint, "a-cluster"), bad.Has(cache.Endpoint, "a-cluster"), good.Has(cache.Route, "a-route"), bad.Has(cache.Route, "a-route"))
	})
	for _, u := range usualTypes {
		w.Set(u, nameOf(u), revised(u, 2))
	}
	eventually(t, patience, func() error {
		for _, u := range usualTypes {
			if err := good.AtLeast(u, nameOf(u), 2); err != nil {
				return err
			}
		}
		bad.mu.Lock()
		defer bad.mu.Unlock()
		return is("rejected types", len(bad.rejected), 4)
	})
	for _, u := range usualTypes {
		if h, _ := bad.Get(u, nameOf(u)); atLeast("bad", u, nameOf(u), h, true, 2) == nil {
			t.Fatalf("bad has taken in what it rejected: %s", u.Short())
		}
		w.Set(u, nameOf(u), revised(u, 3))
	}
	eventually(t, patience, func() error {
		for _, u := range usualTypes {
			if err := first(good.AtLeast(u, nameOf(u), 3), bad.AtLeast(u, nameOf(u), 3)); err != nil {
				return err
			}
		}
		return nil
	})
	bad.mu.Lock()
	nacked := 0
	for u, n := range bad.rejected {
		nacked += n
		// Endpoints go with their cluster, rejected or not, of which there are two
		// more versions (ORDER-4).
		if n > 1 && (u != cache.Endpoint || n > 3) {
			t.Errorf("%s was sent %d times although it was rejected", u.Short(), n)
		}
	}
	bad.mu.Unlock()
	if err := first(good.Sound(), bad.Sound(), cp.deltaADSOnly()); err != nil {
		t.Fatal(err)
	}
	if lines := r.log.Lines("client rejected a response", "node_id=bad", "not to my taste"); len(lines) != nacked {
		t.Errorf("%d log lines of %d NACKs:\n%s", len(lines), nacked, strings.Join(lines, "")) // NACK-9
	}
}

// nameOf and revised are the resources of the service "a", by type.
func nameOf(u cache.TypeURL) string {
	switch u {
	case cache.Listener:
		return "a"
	case cache.Route:
		return "a-route"
	default:
		return "a-cluster"
	}
}

// An Envoy that was away is sent exactly what has changed, appeared and vanished
// meanwhile, by the relay it was at and by another one (RECON-2, RECON-20).
func TestEnvoyReconnects(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	for _, name := range []string{"a", "b", "c"} {
		w.service(name, "127.0.0.1:1")
	}
	cp := startControlPlane(t, w.Mux())
	one, other := startRelay(t, cp.addr), startRelay(t, cp.addr)
	e := startEnvoy(t, one.addr, "envoy", func(e *envoy) { e.silent = true })
	all := func(names ...string) func() error {
		return func() error {
			clusters, routes := suffixed(names, "-cluster"), suffixed(names, "-route")
			return first(e.Has(cache.Cluster, clusters...), e.Has(cache.Endpoint, clusters...), e.Has(cache.Listener, names...), e.Has(cache.Route, routes...))
		}
	}
	eventually(t, patience, all("a", "b", "c"))

	for i, move := range []func(){e.Reconnect, func() { e.MoveTo(other.addr) }, func() { e.MoveTo(one.addr) }} {
		revision := i + 2
		e.Close()
		e.Forget()
		if i > 0 {
			w.service("b", "127.0.0.1:1")
			w.Set(cache.Endpoint, "c-cluster", endpoints("c-cluster", revision, "127.0.0.1:2"))
		}
		w.Set(cache.Route, "a-route", routeTo("a-route", revision, "a-cluster"))
		if i == 0 {
			w.Delete(cache.Listener, "b")
			w.Delete(cache.Cluster, "b-cluster")
		}
		move()
		names := []string{"a", "b", "c"}
		heard := []string{"EDS +c-cluster", "RDS +a-route"}
		switch i {
		case 0:
			names = []string{"a", "c"}
			heard = []string{"CDS -b-cluster", "LDS -b", "RDS +a-route"}
		case 1:
			heard = append(heard, "CDS +b-cluster", "EDS +b-cluster", "LDS +b", "RDS +b-route")
		}
		asExpected := func() error { return first(all(names...)(), e.HeardOnly(heard...)) }
		eventually(t, patience, asExpected)
		throughout(t, quiet, asExpected)
	}
	if err := first(e.Sound(), cp.deltaADSOnly()); err != nil {
		t.Fatal(err)
	}
}

func suffixed(names []string, suffix string) []string {
	out := make([]string, 0, len(names))
	for _, name := range names {
		out = append(out, name+suffix)
	}
	return out
}
