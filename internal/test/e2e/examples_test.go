package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// The sidecar of deploy/examples has three clusters. Its control plane comes back
// and shows less for a moment, and the proxy keeps what it has (H-22).
func TestSidecarExampleIsGuarded(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	names := []string{"a-cluster", "b-cluster", "c-cluster"}
	for _, name := range []string{"a", "b", "c"} {
		w.service(name, "127.0.0.1:1")
	}
	cp := startControlPlane(t, w.Mux())
	r := startExample(t, "sidecar", cp.addr, "upstream.tls.ca=", "upstream.tls.cert=", "upstream.tls.key=", "cache.snapshot.dir="+filepath.Join(t.TempDir(), "state"))
	e := startEnvoy(t, r.addr, "sidecar", nil)
	complete := func() error {
		return first(e.Has(cache.Cluster, names...), e.Has(cache.Endpoint, names...), e.Has(cache.Listener, "a", "b", "c"))
	}
	eventually(t, patience, complete)

	cp.Stop()
	w.Delete(cache.Cluster, "c-cluster")
	w.Delete(cache.Listener, "c")
	cp.Start()
	eventually(t, patience, func() error {
		for _, u := range []cache.TypeURL{cache.Cluster, cache.Listener} {
			if len(r.log.Lines("removes much at once", string(u), "count=1", "total=3")) == 0 {
				return fmt.Errorf("nothing is said of %s that is held back", u.Short())
			}
		}
		return nil
	})
	throughout(t, 10*quiet, complete)

	// It knows better by now, and what it says then is the last word.
	w.service("c", "127.0.0.1:1")
	w.Set(cache.Cluster, "c-cluster", edsCluster("c-cluster", 2))
	eventually(t, patience, func() error { return first(complete(), e.AtLeast(cache.Cluster, "c-cluster", 2)) })
	if err := e.Sound(); err != nil {
		t.Error(err)
	}
}

// The relay of deploy/examples/java-control-plane gives each node.cluster its snapshot,
// and keeps a type from the server that would make it end the stream.
func TestJava_Example(t *testing.T) {
	t.Parallel()
	clusters := []string{"checkout", "billing"}
	var snapshots []javaSnapshot
	worlds := make(map[string]*javaWorld)
	for _, name := range clusters {
		w := newJavaWorld(t, name)
		w.service(name, "127.0.0.1:1")
		worlds[name] = w
		snapshots = append(snapshots, w.snapshot())
	}
	cp := startJava(t, byNodeCluster, snapshots...)
	r := startExample(t, "java-control-plane", cp.addr, "cache.snapshot.dir="+filepath.Join(t.TempDir(), "state"))
	var envoys []*envoy
	for _, name := range clusters {
		envoys = append(envoys, startEnvoy(t, r.addr, "proxy-"+name, nil, thisNodeInEach(&core.Node{Id: "proxy-1", Cluster: name})))
	}
	has := func(revision int) func() error {
		return func() error {
			for i, e := range envoys {
				name := clusters[i]
				if err := first(e.AtLeast(cache.Endpoint, name+"-cluster", revision), e.Has(cache.Cluster, name+"-cluster"),
					e.Has(cache.Listener, name), e.Has(cache.Route, name+"-route")); err != nil {
					return err
				}
			}
			return nil
		}
	}
	eventually(t, javaSoon, has(1))
	for i, name := range clusters {
		envoys[i].Subscribe(cache.Runtime, "layer")
		worlds[name].cluster(name+"-cluster", 2, "127.0.0.1:2")
		worlds[name].Publish(cp)
	}
	eventually(t, javaSoon, has(2))
	if lines := cp.Wire(" failed: "); len(lines) > 0 {
		t.Errorf("a stream of the server failed: %v", lines)
	}
}
