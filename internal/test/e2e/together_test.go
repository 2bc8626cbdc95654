package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
)

// gRPC clients, which name what they want, Envoys, which want everything, and a
// relay with both behind it share one upstream connection. Whoever comes first,
// each sees all it asked for and nothing else; the control plane sees one Delta
// ADS stream, and one more only while a type is wanted both ways (WILD-13,
// WILD-16). LinearCache is what makes it hard: to a wildcard that follows names it
// does not repeat what it has sent by name.
func TestTogether(t *testing.T) {
	const services = 20
	arrivals := map[string][]int{ // of gRPC, Envoy and the chained relay
		"gRPC first":  {0, 1, 2},
		"Envoy first": {1, 0, 2},
		"relay first": {2, 0, 1},
		"at once":     nil,
	}
	for order, sequence := range arrivals {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			blue, green := startBackend(t, "blue"), startBackend(t, "green")
			w := newLinear(t)
			for i := range services {
				w.service(fmt.Sprintf("svc%02d", i), blue)
			}
			cp := startControlPlane(t, w.Mux())
			// A name that nobody wants is given up at once, so that the end is seen.
			linger := "timers.name_linger=100ms"
			r := startRelay(t, cp.addr, linger)
			behind := startRelay(t, r.addr, linger, "instance=behind")

			g := &grpcFleet{}
			e := &envoyFleet{services: services}
			far := &envoyFleet{services: services}
			farG := &grpcFleet{}
			start := []func(){
				func() { g.start(t, r.addr, "near") },
				func() { e.start(t, r.addr, "near") },
				func() { far.start(t, behind.addr, "far"); farG.start(t, behind.addr, "far") },
			}
			see := []func() error{
				func() error { return g.sees("blue") },
				e.sees,
				func() error { return first(far.sees(), farG.sees("blue")) },
			}
			if sequence == nil {
				for _, s := range start {
					s()
				}
				sequence = []int{0, 1, 2}
			} else {
				for n, i := range sequence {
					start[i]()
					if n == 0 && i != 2 {
						// One kind alone needs one stream.
						eventually(t, patience, see[i])
						if err := is("streams upstream", cp.Most(), 1); err != nil {
							t.Error(err)
						}
					}
				}
			}
			for _, i := range sequence {
				eventually(t, patience, see[i])
			}
			eventually(t, patience, func() error { return is("streams upstream", cp.Open(), 2) })

			// What changes reaches all of them, whichever stream brings it.
			w.Set(cache.Endpoint, "svc00-cluster", endpoints("svc00-cluster", 2, green))
			w.service("svc99", blue)
			w.Delete(cache.Listener, "svc19")
			w.Delete(cache.Cluster, "svc19-cluster")
			e.added, e.removed, far.added, far.removed = "svc99", "svc19", "svc99", "svc19"
			eventually(t, patience, func() error {
				return first(g.sees("green"), farG.sees("green"), e.sees(), far.sees())
			})

			if err := first(g.sound(), farG.sound(), e.sound(), far.sound(), cp.deltaADSOnly(), is("streams upstream at most", cp.Most(), min(cp.Most(), 4))); err != nil {
				t.Error(err)
			}
			cp.see(func(streams []*upstreamStream) {
				roles := []string{}
				for _, s := range streams {
					roles = append(roles, s.role)
				}
				slices.Sort(roles)
				// Both may be opened again once, to tell of the relay that has come (NODE-11),
				// and the server may learn late that the old ones have ended.
				if len(roles) > 4 || !slices.Equal(slices.Compact(slices.Clone(roles)), []string{"aux", "main"}) {
					t.Errorf("streams upstream were %q", roles)
				}
			})

			// Without the gRPC clients one stream is enough again, and nobody else
			// notices.
			g.stop()
			farG.stop()
			eventually(t, patience, func() error { return is("streams upstream", cp.Open(), 1) })
			w.Set(cache.Cluster, "svc05-cluster", edsCluster("svc05-cluster", 7))
			eventually(t, patience, func() error {
				return first(e.sees(), far.sees(), e.atLeast(cache.Cluster, "svc05-cluster", 7), far.atLeast(cache.Cluster, "svc05-cluster", 7))
			})
			// Not how many there were at most: the control plane notices the end of the
			// streams that were given up later than the beginning of the next one.
			if err := first(e.sound(), far.sound(), is("streams upstream", cp.Open(), 1)); err != nil {
				t.Error(err)
			}
		})
	}
}

// grpcFleet is a real gRPC application and a client that watches as one does.
type grpcFleet struct {
	app *app
	raw *sotwClient
}

func (g *grpcFleet) start(t *testing.T, target, name string) {
	g.app = startApp(t, target, "app-"+name, "svc00")
	g.raw = openSotw(t, target, "grpc-"+name)
	g.raw.Watch(cache.Listener, "svc01", "svc02")
	g.raw.Watch(cache.Route, "svc01-route", "svc02-route")
	g.raw.Watch(cache.Cluster, "svc01-cluster", "svc02-cluster")
	g.raw.Watch(cache.Endpoint, "svc01-cluster", "svc02-cluster")
}

func (g *grpcFleet) sees(backend string) error {
	return first(
		g.app.Reaches(backend),
		g.raw.Has(cache.Listener, "svc01", "svc02"), g.raw.Has(cache.Route, "svc01-route", "svc02-route"),
		g.raw.Has(cache.Cluster, "svc01-cluster", "svc02-cluster"), g.raw.Has(cache.Endpoint, "svc01-cluster", "svc02-cluster"),
	)
}

func (g *grpcFleet) sound() error { return g.raw.Sound() }

func (g *grpcFleet) stop() {
	g.app.conn.Close()
	g.raw.Close()
}

// envoyFleet are Envoys of either habit.
type envoyFleet struct {
	services       int
	added, removed string
	envoys         []*envoy
}

func (f *envoyFleet) start(t *testing.T, target, name string) {
	f.envoys = append(f.envoys,
		startEnvoy(t, target, "envoy-"+name, func(e *envoy) { e.withhold, e.silent = true, true }),
		startEnvoy(t, target, "envoy2-"+name, nil),
	)
}

func (f *envoyFleet) sees() error {
	names := []string{}
	for i := range f.services {
		if name := fmt.Sprintf("svc%02d", i); name != f.removed {
			names = append(names, name)
		}
	}
	if f.added != "" {
		names = append(names, f.added)
	}
	clusters, routes := suffixed(names, "-cluster"), suffixed(names, "-route")
	for _, e := range f.envoys {
		if err := first(e.Has(cache.Cluster, clusters...), e.Has(cache.Listener, names...), e.Has(cache.Endpoint, clusters...), e.Has(cache.Route, routes...)); err != nil {
			return err
		}
	}
	return nil
}

func (f *envoyFleet) atLeast(u cache.TypeURL, name string, revision int) error {
	for _, e := range f.envoys {
		if err := e.AtLeast(u, name, revision); err != nil {
			return err
		}
	}
	return nil
}

func (f *envoyFleet) sound() error {
	for _, e := range f.envoys {
		if err := e.Sound(); err != nil {
			return err
		}
	}
	return nil
}
