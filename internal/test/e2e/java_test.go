package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Below are the situations in which java-control-plane and the relay once did not
// get on. Each is played without a relay, too, with those clients that do get on
// with this server by themselves: what it does not do for them is not the relay's
// fault, though the relay's clients get more.

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
// what it has removed it never announces again, unless subscribed again).
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

// An Envoy, which asks for everything, leaves, and the gRPC clients beside it go on,
// whether they came before it or after: what was served to them from its copy has not
// gone with it (WILD-11).
func TestJava_WildcardLeaves(t *testing.T) {
	t.Parallel()
	overJava(t, nil, func(t *testing.T, path javaPath) {
		for _, order := range [][]string{{"all", "a", "b"}, {"a", "all", "b"}} {
			t.Run(fmt.Sprint(order), func(t *testing.T) {
				t.Parallel()
				w := newJavaWorld(t, byNothing)
				w.service("a", startBackend(t, "a"))
				w.service("b", startBackend(t, "b"))
				cp := startJava(t, byNothing, w.snapshot())
				target := path.To(t, cp, "timers.name_linger=1s")
				var all *envoy
				apps := make(map[string]*app)
				for _, name := range order {
					if name == "all" {
						all = startEnvoy(t, target, "all", nil)
						eventually(t, javaSoon, func() error {
							return first(all.AtLeast(cache.Endpoint, "a-cluster", 1), all.AtLeast(cache.Endpoint, "b-cluster", 1),
								all.AtLeast(cache.Route, "a-route", 1), all.AtLeast(cache.Route, "b-route", 1))
						})
					} else {
						apps[name] = startApp(t, target, "app-"+name, name)
						eventually(t, javaSoon, func() error { return apps[name].Finds(name) })
					}
					wait(time.Second)
				}
				bothFound := func() error { return first(apps["a"].Reaches("a"), apps["b"].Reaches("b")) }
				throughout(t, javaSilence, bothFound) // b's listener is not answered: it lives on the Envoy's
				path.sound(t, all.deltaClient)
				all.Close()
				throughout(t, javaSilence, bothFound)
				for name := range apps {
					w.cluster(name+"-cluster", 2, startBackend(t, name+"-2"))
				}
				w.Publish(cp)
				for name, a := range apps {
					eventually(t, javaSoon, func() error { return a.Finds(name + "-2") })
				}
			})
		}
	})
}

// Clusters that nobody has asked for, but that are sent all the same, change, go and
// come. Whoever asks for them then has them as they are, before the control plane
// says anything: it never will (UP-9).
func TestJava_ShownUnasked(t *testing.T) {
	t.Parallel()
	overJava(t, withoutSotw, func(t *testing.T, path javaPath) {
		w := newJavaWorld(t, byNothing)
		for _, name := range []string{"asked", "changes", "goes"} {
			w.cluster(name, 1, "127.0.0.1:1")
		}
		cp := startJava(t, byNothing, w.snapshot())
		target := path.To(t, cp)
		asked := openDelta(t, target, "asked")
		asked.Subscribe(cache.Cluster, "asked")
		eventually(t, javaSoon, holds(asked, cache.Cluster, "asked", 1))

		w.cluster("changes", 2, "127.0.0.1:1")
		w.cluster("comes", 1, "127.0.0.1:1")
		w.drop("goes")
		w.Publish(cp)
		wait(time.Second)
		late := openDelta(t, target, "late")
		late.Subscribe(cache.Cluster, "changes", "comes", "goes")
		eventually(t, javaSoon, func() error {
			return first(late.AtLeast(cache.Cluster, "changes", 2), late.AtLeast(cache.Cluster, "comes", 1), lacks(late, cache.Cluster, "goes"))
		})
		w.cluster("changes", 3, "127.0.0.1:1")
		w.cluster("goes", 1, "127.0.0.1:1")
		w.drop("comes")
		w.Publish(cp)
		eventually(t, javaSoon, func() error {
			return first(late.AtLeast(cache.Cluster, "changes", 3), late.AtLeast(cache.Cluster, "goes", 1), lacks(late, cache.Cluster, "comes"))
		})
		path.sound(t, asked, late)
	})
}
