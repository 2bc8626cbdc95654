package envoy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// mount is a directory as Kubernetes mounts a ConfigMap: its files are links into ..data, which is swapped.
type mount struct {
	t     testing.TB
	dir   string
	swaps int
}

func newMount(t testing.TB, has world) *mount {
	m := &mount{t: t, dir: t.TempDir()}
	m.swap(has)
	for u := range has {
		name := u.Short() + ".json"
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(m.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// swap puts another world in place of the one before, at once.
func (m *mount) swap(has world) {
	m.t.Helper()
	m.swaps++
	next := filepath.Join(m.dir, fmt.Sprintf("..%d", m.swaps))
	err := os.Mkdir(next, 0o700)
	for u, all := range has {
		response := &discovery.DiscoveryResponse{TypeUrl: string(u), VersionInfo: fmt.Sprint(m.swaps)}
		for _, r := range all {
			response.Resources = append(response.Resources, r.body)
		}
		text, failed := protojson.Marshal(response)
		if failed != nil {
			m.t.Fatal(failed)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(next, u.Short()+".json"), text, 0o600)
		}
	}
	data := filepath.Join(m.dir, "..data")
	if err == nil {
		err = os.Symlink(filepath.Base(next), data+"_tmp")
	}
	if err == nil {
		err = os.Rename(data+"_tmp", data)
	}
	if err == nil {
		err = os.RemoveAll(filepath.Join(m.dir, fmt.Sprintf("..%d", m.swaps-1)))
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// fromMount has an Envoy read clusters and listeners from a mount by itself.
func fromMount(t testing.TB, m *mount) *realenvoy.Envoy {
	t.Helper()
	source := func(u cache.TypeURL) realenvoy.Object {
		return realenvoy.Object{"resource_api_version": "V3", "path_config_source": realenvoy.Object{
			"path": filepath.Join(m.dir, u.Short()+".json"), "watched_directory": realenvoy.Object{"path": m.dir},
		}}
	}
	return realenvoy.Start(t, realenvoy.Bootstrap{
		"node":              realenvoy.Object{"id": "files", "cluster": "e2e"},
		"dynamic_resources": realenvoy.Object{"cds_config": source(cache.Cluster), "lds_config": source(cache.Listener)},
	}, realenvoy.Options{Name: "files"})
}

// generation is a world of static clusters, of which one comes and one goes with each generation, and of a listener
// that says which one it is.
func generation(n int) world {
	has := make(world)
	for i := n; i < n+10; i++ {
		name := fmt.Sprintf("cluster-%d", i)
		has.put(cache.Cluster, name, &cluster.Cluster{Name: name, AltStatName: fmt.Sprintf("%s-%d", name, n), LoadAssignment: endpoints(name, "127.0.0.1:1")})
	}
	has.put(cache.Listener, "web", byADS().listener("web", "", func(m *hcm.HttpConnectionManager) {
		m.RouteSpecifier = &hcm.HttpConnectionManager_RouteConfig{RouteConfig: routes("inline", saying(fmt.Sprint(n)))}
	}))
	return has
}

// held is what an Envoy holds, without versions and times.
func held(e *realenvoy.Envoy) (string, error) {
	d, err := e.Dump()
	if err != nil {
		return "", err
	}
	bodies := map[string]map[string]json.RawMessage{"clusters": {}, "listeners": {}}
	for kind, all := range map[string]map[string]realenvoy.Resource{"clusters": d.Clusters, "listeners": d.Listeners} {
		for name, r := range all {
			var body bytes.Buffer
			if err := json.Compact(&body, r.Body); err != nil {
				return "", err
			}
			bodies[kind][name] = body.Bytes()
		}
	}
	text, err := json.Marshal(bodies)
	return string(text), err
}

// An Envoy behind a relay that serves a directory holds what one does that reads it by itself, after each swap.
func TestFiles(t *testing.T) {
	realenvoy.Need(t)
	for _, w := range variants(way{relays: 1}) {
		t.Run(w.String(), func(t *testing.T) {
			m := newMount(t, generation(0))
			r := startRelay(t, "tier-1", "files://"+m.dir)
			one, two := fromMount(t, m), startEnvoy(t, w, "relayed", r.addr)
			both := []*realenvoy.Envoy{one, two}
			var web [2]string
			for i, e := range both {
				e.WaitReady(patience)
				web[i] = listens(t, e, "web")
			}
			for n := 1; n <= often(50, 5); n++ {
				m.swap(generation(n))
				for i, e := range both {
					peer.Eventually(t, patience, func() error {
						if d, err := e.Dump(); err != nil || len(d.Clusters) != 10 {
							return fmt.Errorf("%d clusters: %w", len(d.Clusters), err)
						}
						return answers(web[i], fmt.Sprint(n))
					})
				}
				peer.Eventually(t, patience, func() error {
					a, err := held(one)
					if err != nil {
						return err
					}
					b, err := held(two)
					if err == nil && a != b {
						err = fmt.Errorf("after swap %d the one that reads files holds\n%s\nand the other\n%s", n, a, b)
					}
					return err
				})
			}
			if n := r.nacks(); n > 0 {
				t.Errorf("%d responses were rejected", n)
			}
		})
	}
}

// One swap turns a route to a cluster that comes with it, and takes the one before away. Under load no request fails.
func TestFilesTurn(t *testing.T) {
	realenvoy.Need(t)
	backends := []string{realenvoy.Backend(t, "even"), realenvoy.Backend(t, "odd")}
	names := []string{"even", "odd"}
	for _, w := range variants(way{relays: 1}) {
		t.Run(w.String(), func(t *testing.T) {
			m := newMount(t, w.makes().service("cluster-0", backends[0]))
			r := startRelay(t, "tier-1", "files://"+m.dir)
			e := startEnvoy(t, w, "relayed", r.addr)
			e.WaitReady(patience)
			address := listens(t, e, "web")
			peer.Eventually(t, patience, func() error { return answers(address, "even") })
			load := realenvoy.Drive(t, address, rate())
			for n := 1; n <= often(50, 5); n++ {
				m.swap(w.makes().service(fmt.Sprintf("cluster-%d", n), backends[n%2]))
				peer.Eventually(t, patience, func() error {
					d, err := e.Dump()
					if err == nil && len(d.Clusters) != 1 {
						err = fmt.Errorf("%d clusters are there", len(d.Clusters))
					}
					if err != nil {
						return err
					}
					return peer.Is("answer", load.Last(), names[n%2])
				})
				peer.Wait(100 * time.Millisecond)
			}
			unharmed(t, e, load)
		})
	}
}

// The example of files does what its README says; only the port of its listener is another one.
func TestFilesExample(t *testing.T) {
	realenvoy.Need(t)
	dir := t.TempDir()
	for _, name := range []string{"clusters.yaml", "listeners.yaml", "routes.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../../../deploy/examples/files/xds", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), bytes.Replace(text, []byte("port_value: 10000"), []byte("port_value: 0"), 1), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r := startRelay(t, "tier-1", "files://"+dir)
	e := startEnvoy(t, way{relays: 1}, "example", r.addr)
	e.WaitReady(patience)
	address := listens(t, e, "web")
	peer.Eventually(t, patience, func() error { return answers(address, "from a file") })
	routes := filepath.Join(dir, "routes.yaml")
	text, err := os.ReadFile(routes)
	if err == nil {
		err = os.WriteFile(routes+".new", bytes.Replace(text, []byte("from a file"), []byte("from another file"), 1), 0o600)
	}
	if err == nil {
		err = os.Rename(routes+".new", routes)
	}
	if err != nil {
		t.Fatal(err)
	}
	peer.Eventually(t, patience, func() error { return answers(address, "from another file") })
}
