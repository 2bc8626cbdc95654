package envoy

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// sovereign is a Sovereign, which speaks REST only. It can be killed and started again.
type sovereign struct {
	*peer.Process

	t         testing.TB
	dir, addr string
}

// sovereignTypes are what Sovereign calls the types.
var sovereignTypes = map[cache.TypeURL]string{
	cache.Listener: "listeners", cache.Route: "routes", cache.Cluster: "clusters", cache.Endpoint: "endpoints", cache.Secret: "secrets",
}

func newSovereign(t testing.TB, has world) *sovereign {
	t.Helper()
	s := &sovereign{t: t, dir: t.TempDir(), addr: loopback.Reserve(t)}
	config := "templates:\n  default:\n"
	for _, name := range sovereignTypes {
		template := filepath.Join(s.dir, "template-"+name+".py") // not what Python has a module for
		text := fmt.Sprintf("import json\n\ndef call(**_):\n    with open(%q) as f:\n        return json.load(f)\n", filepath.Join(s.dir, name+".json"))
		s.write(template, text)
		config += fmt.Sprintf("    - {type: %s, spec: {protocol: python, path: %s}}\n", name, template)
	}
	s.write(filepath.Join(s.dir, "sovereign.yaml"), config)
	s.set(has)
	s.Start()
	return s
}

func (s *sovereign) write(path, text string) {
	s.t.Helper()
	err := os.WriteFile(path+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// set puts another world in place.
func (s *sovereign) set(has world) {
	s.t.Helper()
	for u, name := range sovereignTypes {
		all := []json.RawMessage{}
		for _, r := range has[u] {
			text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(r.body)
			if err != nil {
				s.t.Fatal(err)
			}
			all = append(all, text)
		}
		text, err := json.Marshal(all)
		if err != nil {
			s.t.Fatal(err)
		}
		s.write(filepath.Join(s.dir, name+".json"), string(text))
	}
}

// Start starts it, again if it was killed.
func (s *sovereign) Start() {
	s.t.Helper()
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	run := fmt.Sprintf("import uvicorn\nfrom sovereign.app import app\nuvicorn.run(app, host=%q, port=%s)\n", host, port)
	cmd := exec.Command(os.Getenv("SOVEREIGN"), "-c", run)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "SOVEREIGN_CONFIG=file://"+filepath.Join(s.dir, "sovereign.yaml"))
	s.Process = peer.Start(s.t, cmd)
	peer.Eventually(s.t, patience, func() error {
		resp, err := http.Post("http://"+s.addr+"/v3/discovery:clusters", "application/json", strings.NewReader(`{"node": {"cluster": "e2e"}}`))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return peer.Is("status", resp.StatusCode, http.StatusOK)
	})
}

// merged is all that is in some worlds.
func merged(worlds ...world) world {
	all := make(world)
	for _, w := range worlds {
		for u, set := range w {
			for name, r := range set {
				if all[u] == nil {
					all[u] = make(map[string]resource)
				}
				all[u][name] = r
			}
		}
	}
	return all
}

// A Sovereign, which is polled: an Envoy that speaks Delta has what it has, and its changes. While it is killed nothing is
// removed, no request fails, and an Envoy that boots is served.
func TestSovereign(t *testing.T) {
	realenvoy.Need(t)
	if os.Getenv("SOVEREIGN") == "" {
		t.Skip("SOVEREIGN does not name a Python that has Sovereign: python3 -m venv DIR && DIR/bin/pip install sovereign==0.32.12, SOVEREIGN=DIR/bin/python")
	}
	w := way{relays: 1}
	even, odd := w.makes().service("even", realenvoy.Backend(t, "even")), w.makes().service("odd", realenvoy.Backend(t, "odd"))
	s := newSovereign(t, even)
	r := startRelay(t, "tier-1", "rest+http://"+s.addr, "upstream.node.cluster=e2e", "upstream.rest.poll=500ms")
	e := startEnvoy(t, w, "relayed", r.addr)
	e.WaitReady(patience)
	address := listens(t, e, "web")
	peer.Eventually(t, patience, func() error { return answers(address, "even") })
	load := realenvoy.Drive(t, address, rate())
	clusters := func(e *realenvoy.Envoy, n int) func() error {
		return func() error {
			d, err := e.Dump()
			if err == nil {
				err = peer.Is("number of clusters", len(d.Clusters), n)
			}
			return err
		}
	}
	s.set(merged(odd, even)) // the route is to even
	peer.Eventually(t, patience, clusters(e, 2))
	peer.Wait(time.Second)
	s.set(merged(even, odd))
	peer.Eventually(t, patience, func() error { return peer.Is("answer", load.Last(), "odd") })

	s.Kill()
	peer.Wait(time.Duration(often(60, 8)) * time.Second)
	late := startEnvoy(t, w, "late", r.addr)
	late.WaitReady(patience)
	other := listens(t, late, "web")
	peer.Eventually(t, patience, func() error { return answers(other, "odd") })
	if err := clusters(e, 2)(); err != nil {
		t.Error(err)
	}
	if removed, err := e.Stats("cluster_manager.cluster_removed"); err != nil || removed["cluster_manager.cluster_removed"] != 0 {
		t.Errorf("of the clusters are removed %v, %v", removed, err)
	}
	s.Start()
	s.set(odd)
	for _, e := range []*realenvoy.Envoy{e, late} {
		peer.Eventually(t, patience, clusters(e, 1))
	}
	unharmed(t, e, load)
	if n := r.nacks(); n > 0 {
		t.Errorf("%d responses were rejected", n)
	}
}
