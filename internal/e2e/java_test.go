package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
)

// Below are the situations in which java-control-plane and the relay once did not
// get on. Each is played without a relay, too, with those clients that do get on
// with this server by themselves: what it does not do for them is not the relay's
// fault, though the relay's clients get more.

// javaPath is how clients reach the control plane.
type javaPath struct {
	name    string
	relayed bool
	sets    []string
}

// javaPaths are without a relay, through one as it is by default, and through one
// that speaks SotW upstream. Of that only so much is asked as UP-20, which is not
// built, has no part in: this server answers no SotW request that names anything it
// lacks.
var javaPaths = []javaPath{
	{name: "direct"},
	{name: "relay", relayed: true},
	{name: "relay, SotW upstream", relayed: true, sets: []string{"upstream.mode=sotw"}},
}

// withoutSotw picks the paths of situations in which a name is asked for that the
// control plane lacks, or in which it comes back with other content under the
// versions that it had: to a request that says a version it has, it is silent.
func withoutSotw(p javaPath) bool { return len(p.sets) == 0 }

// overJava plays a situation on each path that is picked; nil picks all.
func overJava(t *testing.T, pick func(javaPath) bool, situation func(*testing.T, javaPath)) {
	t.Helper()
	buildJava(t)
	for _, p := range javaPaths {
		if pick == nil || pick(p) {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				situation(t, p)
			})
		}
	}
}

// To is the address of the control plane, or of a relay in front of it.
func (p javaPath) To(t *testing.T, cp *javaPlane, sets ...string) string {
	if !p.relayed {
		return cp.addr
	}
	return startRelay(t, cp.addr, slices.Concat(p.sets, sets)...).addr
}

// javaSoon is when a client has what there is: before a gRPC client's or an Envoy's
// own 15 s are over.
const javaSoon = 12 * time.Second

// javaWorld is what a group's snapshot is made of, with all types at one version,
// as Snapshot.create has it.
type javaWorld struct {
	t         testing.TB
	group     string
	version   int
	resources map[cache.TypeURL]map[string]proto.Message
}

func newJavaWorld(t testing.TB, group string) *javaWorld {
	w := &javaWorld{t: t, group: group, version: 1, resources: make(map[cache.TypeURL]map[string]proto.Message)}
	for _, u := range usualTypes {
		w.resources[u] = make(map[string]proto.Message)
	}
	return w
}

// service adds what it takes to reach a service, under the names that linear has.
func (w *javaWorld) service(name string, addresses ...string) {
	w.cluster(name+"-cluster", 1, addresses...)
	w.resources[cache.Route][name+"-route"] = routeTo(name+"-route", 1, name+"-cluster")
	w.resources[cache.Listener][name] = apiListener(name, 1, name+"-route")
}

// cluster adds a cluster and its endpoints.
func (w *javaWorld) cluster(name string, revision int, addresses ...string) {
	w.resources[cache.Cluster][name] = edsCluster(name, revision)
	w.resources[cache.Endpoint][name] = endpoints(name, revision, addresses...)
}

// drop takes a cluster and its endpoints away.
func (w *javaWorld) drop(cluster string) {
	delete(w.resources[cache.Cluster], cluster)
	delete(w.resources[cache.Endpoint], cluster)
}

// dropService takes away all that service adds.
func (w *javaWorld) dropService(name string) {
	w.drop(name + "-cluster")
	delete(w.resources[cache.Route], name+"-route")
	delete(w.resources[cache.Listener], name)
}

func (w *javaWorld) snapshot() javaSnapshot {
	s := javaSnapshot{group: w.group, version: strconv.Itoa(w.version)}
	for _, u := range usualTypes {
		for _, name := range slices.Sorted(maps.Keys(w.resources[u])) {
			s.resources = append(s.resources, w.resources[u][name])
		}
	}
	return s
}

// Publish gives the control plane the world as it is now.
func (w *javaWorld) Publish(cp *javaPlane) {
	w.t.Helper()
	w.version++
	cp.Snapshot(w.snapshot())
}

// Restart starts a control plane that has been killed, with the world as it is now.
// It counts its versions from 1 again.
func (w *javaWorld) Restart(cp *javaPlane) {
	w.t.Helper()
	w.version = 1
	cp.Start(w.snapshot())
}

// brief is how long one RPC may wait for a target that has not been found yet.
const brief = 200 * time.Millisecond

// briefly makes one RPC, which waits no longer than that.
func (a *app) briefly() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), brief)
	defer cancel()
	r, err := a.client.UnaryCall(ctx, &testgrpc.SimpleRequest{}, grpc.WaitForReady(true))
	return r.GetServerId(), err
}

// Finds complains unless an RPC is answered by a backend, soon.
func (a *app) Finds(name string) error {
	got, err := a.briefly()
	if err != nil {
		return fmt.Errorf("RPC to %s: %w", name, err)
	}
	return is("RPC answered by", got, name)
}

// Refuses complains if an RPC is answered.
func (a *app) Refuses() error {
	if by, err := a.briefly(); err == nil {
		return fmt.Errorf("an RPC is still answered, by %s", by)
	}
	return nil
}

// holds complains unless a Delta client has a name at a revision or a later one, and
// lacks if it has it at all. A server may send more than it was asked for.
func holds(d *deltaClient, u cache.TypeURL, name string, revision int) func() error {
	return func() error { return d.AtLeast(u, name, revision) }
}

func lacks(d *deltaClient, u cache.TypeURL, name string) error {
	if _, ok := d.Get(u, name); ok {
		return fmt.Errorf("%s still holds %s %q", d.name, u.Short(), name)
	}
	return nil
}

// sound complains of what a relay has said amiss. A control plane that sends what
// was not asked for is none of our business.
func (p javaPath) sound(t *testing.T, clients ...*deltaClient) {
	t.Helper()
	for _, c := range clients {
		if err := c.Sound(); p.relayed && err != nil {
			t.Error(err)
		}
	}
}

// Three gRPC channels, one opened after another, each find their target; so do three
// more after the control plane was killed and came back; and all of them follow what
// changes (UP-9, UP-19: asked for one listener it sends all, and answers no later
// subscribe to any).
func TestJava_ThreeTargets(t *testing.T) {
	t.Parallel()
	overJava(t, nil, func(t *testing.T, path javaPath) {
		w := newJavaWorld(t, byNothing)
		names := []string{"a", "b", "c", "d", "e", "f"}
		for _, name := range names {
			w.service(name, startBackend(t, name))
		}
		cp := startJava(t, byNothing, w.snapshot())
		target := path.To(t, cp)
		apps := make(map[string]*app)
		open := func(names ...string) {
			for _, name := range names {
				apps[name] = startApp(t, target, "app-"+name, name)
				took := eventually(t, javaSoon, func() error { return apps[name].Finds(name) })
				t.Logf("%s was found after %v", name, took)
				wait(2 * time.Second)
			}
		}
		open("a", "b", "c")
		cp.Kill()
		wait(time.Second)
		w.Restart(cp)
		open("d", "e", "f")

		for _, name := range names {
			w.cluster(name+"-cluster", 2, startBackend(t, name+"-2"))
		}
		w.Publish(cp)
		for _, name := range names {
			eventually(t, javaSoon, func() error { return apps[name].Finds(name + "-2") })
		}
	})
}

// A cluster is removed and brought back within name_linger. It has its endpoints
// again, in Envoys old and new, and for whoever wanted it all along (UP-7, UP-19:
// what it has removed it never announces again, unless subscribed anew).
func TestJava_RolledBack(t *testing.T) {
	t.Parallel()
	overJava(t, withoutSotw, func(t *testing.T, path javaPath) {
		w := newJavaWorld(t, byNothing)
		w.service("a", "127.0.0.1:1")
		w.service("b", "127.0.0.1:1")
		cp := startJava(t, byNothing, w.snapshot())
		target := path.To(t, cp)
		old := startEnvoy(t, target, "old", nil)
		clients := []*deltaClient{old.deltaClient}
		if path.relayed {
			// Without a relay it would wait for ever.
			named := openDelta(t, target, "named")
			named.Subscribe(cache.Endpoint, "a-cluster", "b-cluster")
			clients = append(clients, named)
		}
		everybody := func(check func(*deltaClient) error) func() error {
			return func() error {
				for _, c := range clients {
					if err := check(c); err != nil {
						return err
					}
				}
				return nil
			}
		}
		has := func(revision int) func() error {
			return everybody(func(c *deltaClient) error { return c.AtLeast(cache.Endpoint, "a-cluster", revision) })
		}
		eventually(t, javaSoon, has(1))

		w.drop("a-cluster")
		w.Publish(cp)
		eventually(t, javaSoon, everybody(func(c *deltaClient) error { return lacks(c, cache.Endpoint, "a-cluster") }))
		wait(3 * time.Second)
		w.cluster("a-cluster", 2, "127.0.0.1:2")
		w.Publish(cp)
		clients = append(clients, startEnvoy(t, target, "new", nil).deltaClient)
		took := eventually(t, javaSoon, has(2))
		t.Logf("the endpoints were back after %v", took)

		w.cluster("a-cluster", 3, "127.0.0.1:3")
		w.Publish(cp)
		eventually(t, javaSoon, has(3))
		path.sound(t, clients...)
	})
}

// The same to gRPC clients, old and new.
func TestJava_RolledBackForGRPC(t *testing.T) {
	t.Parallel()
	overJava(t, withoutSotw, func(t *testing.T, path javaPath) {
		w := newJavaWorld(t, byNothing)
		w.service("a", startBackend(t, "a-1"))
		cp := startJava(t, byNothing, w.snapshot())
		target := path.To(t, cp)
		apps := []*app{startApp(t, target, "old", "a")}
		eventually(t, javaSoon, func() error { return apps[0].Finds("a-1") })

		w.drop("a-cluster")
		w.Publish(cp)
		if path.relayed {
			eventually(t, javaSoon, apps[0].Refuses)
		} else {
			// In SotW it says nothing of what has gone, and nothing afterwards.
			apps = nil
		}
		wait(3 * time.Second)
		w.cluster("a-cluster", 2, startBackend(t, "a-2"))
		w.Publish(cp)
		apps = append(apps, startApp(t, target, "new", "a"))
		for _, a := range apps {
			eventually(t, javaSoon, func() error { return a.Finds("a-2") })
		}
	})
}

// javaSwept is when what was deleted while the control plane was away has gone: by
// RECON-13 silence about a name counts after dne_timeout, and a sweep of names takes
// dne_timeout_explicit (RECON-12).
const javaSwept = 75 * time.Second

// The control plane is killed, and comes back without a service. It ignores what
// clients say they have, and tells nobody: the relay finds out, whether the versions
// of what is left are those of the first process or others (RECON-13, RECON-12).
func TestJava_RestartWithADeletion(t *testing.T) {
	t.Parallel()
	overJava(t, withoutSotw, func(t *testing.T, path javaPath) {
		for _, steady := range []bool{true, false} {
			t.Run(fmt.Sprintf("same versions %v", steady), func(t *testing.T) {
				t.Parallel()
				w := newJavaWorld(t, byNothing)
				w.service("stays", "127.0.0.1:1")
				w.service("goes", "127.0.0.1:1")
				cp := newJava(t, byNothing)
				cp.steady = steady
				cp.Start(w.snapshot())
				target := path.To(t, cp)
				all := startEnvoy(t, target, "all", nil)
				named := openDelta(t, target, "named")
				types := []cache.TypeURL{cache.Cluster, cache.Endpoint}
				for _, u := range types {
					named.Subscribe(u, "stays-cluster", "goes-cluster")
				}
				clients := []*deltaClient{all.deltaClient, named}
				each := func(check func(*deltaClient, cache.TypeURL) error) func() error {
					return func() error {
						for _, c := range clients {
							for _, u := range types {
								if err := check(c, u); err != nil {
									return err
								}
							}
						}
						return nil
					}
				}
				eventually(t, javaSoon, each(func(c *deltaClient, u cache.TypeURL) error {
					return first(c.AtLeast(u, "stays-cluster", 1), c.AtLeast(u, "goes-cluster", 1))
				}))

				cp.Kill()
				w.dropService("goes")
				wait(time.Second)
				w.Restart(cp)
				if path.relayed {
					took := eventually(t, javaSwept, each(func(c *deltaClient, u cache.TypeURL) error { return lacks(c, u, "goes-cluster") }))
					t.Logf("what was deleted has gone after %v", took)
					eventually(t, javaSoon, func() error {
						return first(lacks(all.deltaClient, cache.Listener, "goes"), lacks(all.deltaClient, cache.Route, "goes-route"))
					})
				} else {
					// Clients of its own are told nothing, and keep it for ever.
					for _, c := range clients {
						c.Reconnect()
					}
				}
				w.cluster("stays-cluster", 2, "127.0.0.1:2")
				w.Publish(cp)
				eventually(t, javaSoon, each(func(c *deltaClient, u cache.TypeURL) error { return c.AtLeast(u, "stays-cluster", 2) }))
				for _, c := range clients {
					if err := c.NeverMissing(cache.Endpoint, "stays-cluster"); err != nil {
						t.Error(err)
					}
				}
				path.sound(t, clients...)
			})
		}
	})
}

// The same to gRPC clients: one target has gone, the other goes on.
func TestJava_RestartWithADeletionForGRPC(t *testing.T) {
	t.Parallel()
	overJava(t, withoutSotw, func(t *testing.T, path javaPath) {
		w := newJavaWorld(t, byNothing)
		w.service("stays", startBackend(t, "stays"))
		w.service("goes", startBackend(t, "goes"))
		cp := startJava(t, byNothing, w.snapshot())
		target := path.To(t, cp)
		stays, goes := startApp(t, target, "one", "stays"), startApp(t, target, "two", "goes")
		eventually(t, javaSoon, func() error { return first(stays.Finds("stays"), goes.Finds("goes")) })

		cp.Kill()
		w.dropService("goes")
		wait(time.Second)
		w.Restart(cp)
		if path.relayed {
			// Without a relay the target that has gone is found for ever: no request
			// that names it is answered.
			took := eventually(t, javaSwept, goes.Refuses)
			t.Logf("what was deleted has gone after %v", took)
		}
		if err := stays.Finds("stays"); err != nil {
			t.Error(err)
		}
	})
}

// Groups by node id, each with a snapshot of its own. It looks for the snapshot with
// the node of each request, so every request has one, and all types are answered for
// every id, and go on being (UP-2).
func TestJava_NodeIDs(t *testing.T) {
	t.Parallel()
	buildJava(t)
	for mode, key := range map[string]string{"template": "id", "passthrough": "node"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			overJava(t, nil, func(t *testing.T, path javaPath) {
				ids := []string{"east", "west"}
				worlds := make(map[string]*javaWorld)
				var snapshots []javaSnapshot
				for _, id := range ids {
					w := newJavaWorld(t, id)
					w.service("shop", startBackend(t, id))
					worlds[id] = w
					snapshots = append(snapshots, w.snapshot())
				}
				cp := startJava(t, byNodeID, snapshots...)
				target := path.To(t, cp, "groups.key=["+key+"]", "upstream.node_mode="+mode)
				apps := make(map[string]*app)
				var envoys []*envoy
				for _, id := range ids {
					if path.relayed {
						// Without a relay a gRPC client that is not of Java finds nothing:
						// it says its node once.
						apps[id] = startApp(t, target, id, "shop")
					}
					envoys = append(envoys, startEnvoy(t, target, id, nil, nodeInEach(id)))
				}
				reached := func(revision int, suffix string) func() error {
					return func() error {
						for _, e := range envoys {
							if err := first(
								e.AtLeast(cache.Cluster, "shop-cluster", revision), e.AtLeast(cache.Endpoint, "shop-cluster", revision),
								e.AtLeast(cache.Listener, "shop", 1), e.AtLeast(cache.Route, "shop-route", 1),
							); err != nil {
								return err
							}
						}
						for id, a := range apps {
							if err := a.Finds(id + suffix); err != nil {
								return err
							}
						}
						return nil
					}
				}
				eventually(t, javaSoon, reached(1, ""))
				for _, id := range ids {
					worlds[id].cluster("shop-cluster", 2, startBackend(t, id+"-2"))
					worlds[id].Publish(cp)
				}
				eventually(t, javaSoon, reached(2, "-2"))
				for _, e := range envoys {
					path.sound(t, e.deltaClient)
				}
			})
		})
	}
}

// nodeInEach has a Delta client say its node in every request, as Envoy does.
func nodeInEach(id string) grpc.DialOption {
	return grpc.WithStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := open(ctx, d, conn, method, opts...)
		return nodeStream{s, id}, err
	})
}

type nodeStream struct {
	grpc.ClientStream
	id string
}

func (s nodeStream) SendMsg(m any) error {
	m.(*discovery.DeltaDiscoveryRequest).Node = &core.Node{Id: s.id}
	return s.ClientStream.SendMsg(m)
}

// A client that asks for everything, and one that asks for names which do not exist
// yet. When they are created both have them; when they have gone and come back, too
// (UP-19, WILD-13).
func TestJava_CreatedLate(t *testing.T) {
	t.Parallel()
	overJava(t, withoutSotw, func(t *testing.T, path javaPath) {
		w := newJavaWorld(t, byNothing)
		w.service("there", "127.0.0.1:1")
		cp := startJava(t, byNothing, w.snapshot())
		target := path.To(t, cp)
		all := startEnvoy(t, target, "all", nil)
		named := openDelta(t, target, "named")
		types := map[cache.TypeURL]string{
			cache.Cluster: "late-cluster", cache.Endpoint: "late-cluster", cache.Listener: "late", cache.Route: "late-route",
		}
		for u, name := range types {
			named.Subscribe(u, name)
		}
		both := func(check func(*deltaClient, cache.TypeURL, string) error) func() error {
			return func() error {
				for u, name := range types {
					if err := first(check(all.deltaClient, u, name), check(named, u, name)); err != nil {
						return err
					}
				}
				return nil
			}
		}
		eventually(t, javaSoon, holds(all.deltaClient, cache.Endpoint, "there-cluster", 1))
		if path.relayed {
			eventually(t, 2*javaSoon, func() error {
				return first(named.Missing(cache.Cluster, "late-cluster"), named.Missing(cache.Endpoint, "late-cluster"), named.Missing(cache.Listener, "late"))
			})
		} else {
			wait(time.Second)
		}
		w.service("late", "127.0.0.1:1")
		w.Publish(cp)
		took := eventually(t, javaSoon, both(func(c *deltaClient, u cache.TypeURL, name string) error { return c.AtLeast(u, name, 1) }))
		t.Logf("what was created arrived after %v", took)

		w.dropService("late")
		w.Publish(cp)
		eventually(t, javaSoon, both(lacks))
		if path.relayed {
			// Without a relay, whoever asked by name would wait for ever.
			wait(2 * time.Second)
			w.service("late", "127.0.0.1:1")
			w.Publish(cp)
			took = eventually(t, javaSoon, both(func(c *deltaClient, u cache.TypeURL, name string) error { return c.AtLeast(u, name, 1) }))
			t.Logf("what came back arrived after %v", took)
		}
		path.sound(t, all.deltaClient, named)
	})
}

// A cluster that nobody wants any more is deleted, and then asked for. This server
// goes on sending the changes of what was unsubscribed, but not that it has gone: a
// copy kept unasked must not be served for ever (UP-9).
func TestJava_DeletedWhileUnwanted(t *testing.T) {
	t.Parallel()
	overJava(t, func(p javaPath) bool { return p.relayed && withoutSotw(p) }, func(t *testing.T, path javaPath) {
		w := newJavaWorld(t, byNothing)
		for _, name := range []string{"stays", "goes"} {
			w.cluster(name, 1, "127.0.0.1:1")
		}
		cp := startJava(t, byNothing, w.snapshot())
		target := path.To(t, cp, "timers.name_linger=1s")
		stays, goes := openDelta(t, target, "stays"), openDelta(t, target, "goes")
		stays.Subscribe(cache.Cluster, "stays")
		eventually(t, javaSoon, holds(stays, cache.Cluster, "stays", 1))
		goes.Subscribe(cache.Cluster, "goes")
		eventually(t, javaSoon, holds(goes, cache.Cluster, "goes", 1))
		goes.Close()
		wait(4 * time.Second)
		w.drop("goes")
		w.Publish(cp)

		late := openDelta(t, target, "late")
		late.Subscribe(cache.Cluster, "goes")
		eventually(t, 40*time.Second, func() error { return first(late.Missing(cache.Cluster, "goes"), lacks(late, cache.Cluster, "goes")) })
		path.sound(t, stays, late)
	})
}

// A client asks for a type that the control plane does not know, which ends its
// stream. Whoever shares it is served all the same.
func TestJava_UnknownType(t *testing.T) {
	t.Parallel()
	overJava(t, nil, func(t *testing.T, path javaPath) {
		w := newJavaWorld(t, byNothing)
		w.service("a", "127.0.0.1:1")
		cp := startJava(t, byNothing, w.snapshot())
		target := path.To(t, cp)
		old := startEnvoy(t, target, "old", nil)
		eventually(t, javaSoon, holds(old.deltaClient, cache.Endpoint, "a-cluster", 1))
		odd := openDelta(t, target, "odd")
		odd.Subscribe(unknownType, "thing")
		wait(2 * time.Second)
		late := startEnvoy(t, target, "new", nil)
		for revision := 2; revision < 5; revision++ {
			w.cluster("a-cluster", revision, "127.0.0.1:1")
			w.Publish(cp)
			took := eventually(t, 2*javaSoon, func() error {
				return first(old.AtLeast(cache.Endpoint, "a-cluster", revision), late.AtLeast(cache.Endpoint, "a-cluster", revision))
			})
			t.Logf("revision %d arrived after %v", revision, took)
			wait(time.Second)
		}
		path.sound(t, old.deltaClient, late.deltaClient)
	})
}

// javaSilence is how long it takes until silence about a name has counted (MISS-3).
const javaSilence = 20 * time.Second

// An Envoy, which asks for everything, leaves, and the gRPC clients beside it go on:
// what was served to them from its copy has not gone with it (WILD-11).
func TestJava_WildcardLeaves(t *testing.T) {
	t.Parallel()
	overJava(t, nil, func(t *testing.T, path javaPath) {
		w := newJavaWorld(t, byNothing)
		names := []string{"a", "b"}
		for _, name := range names {
			w.service(name, startBackend(t, name))
		}
		cp := startJava(t, byNothing, w.snapshot())
		target := path.To(t, cp, "timers.name_linger=1s")
		all := startEnvoy(t, target, "all", nil)
		eventually(t, javaSoon, holds(all.deltaClient, cache.Endpoint, "b-cluster", 1))
		apps := make(map[string]*app)
		for _, name := range names {
			apps[name] = startApp(t, target, "app-"+name, name)
			eventually(t, javaSoon, func() error { return apps[name].Finds(name) })
			wait(time.Second)
		}
		bothFound := func() error { return first(apps["a"].Reaches("a"), apps["b"].Reaches("b")) }
		throughout(t, javaSilence, bothFound) // b's listener is not answered: it lives on the Envoy's
		path.sound(t, all.deltaClient)
		all.Close()
		throughout(t, javaSilence, bothFound)
		for _, name := range names {
			w.cluster(name+"-cluster", 2, startBackend(t, name+"-2"))
		}
		w.Publish(cp)
		for _, name := range names {
			eventually(t, javaSoon, func() error { return apps[name].Finds(name + "-2") })
		}
	})
}
