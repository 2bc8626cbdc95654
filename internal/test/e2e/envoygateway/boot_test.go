package envoygateway

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// readiness is a listener that Envoy Gateway gives to every Envoy.
const readiness = "envoy-gateway-proxy-ready-0.0.0.0-19003"

// Two Envoys of two Gateways come to one relay, one with the bootstrap of the example,
// one with that which Envoy Gateway makes. Each gets its own Gateway's, and nothing else.
func TestGateway_Boot(t *testing.T) {
	w := newWorld(t, "eg", "other")
	g := startGateway(t, w)
	r := startRelay(t, g)
	envoys := map[string]*realenvoy.Envoy{
		"eg":    realenvoy.Start(t, g.example(r.listen), realenvoy.Options{Name: "eg"}),
		"other": startEnvoy(t, g, "other", r.listen),
	}
	for name, e := range envoys {
		t.Logf("%s was ready after %v", name, e.WaitReady(patience))
		arrives(t, w.Address(name), "/", name)
	}

	groups, err := r.Groups()
	if err != nil {
		t.Fatal(err)
	}
	for name, e := range envoys {
		own := namespace + "/" + name
		if !slices.ContainsFunc(groups, func(g group) bool { return g.Key == `cluster="`+own+`";` }) {
			t.Errorf("no group is that of %s: %v", own, groups)
		}
		dump, err := e.Dump()
		if err != nil {
			t.Fatal(err)
		}
		if len(dump.Listeners) == 0 || len(dump.Routes) == 0 || len(dump.Clusters) == 0 || len(dump.Endpoints) == 0 {
			t.Errorf("%s has %d listeners, %d routes, %d clusters, %d endpoints", name, len(dump.Listeners), len(dump.Routes), len(dump.Clusters), len(dump.Endpoints))
		}
		for listener := range dump.Listeners {
			if listener != readiness && !strings.HasPrefix(listener, own+"/") {
				t.Errorf("%s has the listener %s", name, listener)
			}
		}
	}
}

// EnvoyProxy has a say in the bootstrap: not where the cluster xds_cluster is, but from whom
// to learn that. With the patch of the example the Envoys that Envoy Gateway starts come to
// the relay, by a file.
func TestGateway_Bootstrap(t *testing.T) {
	w := newWorld(t, "eg")
	const xds = "$.static_resources.clusters[?(@.name=='xds_cluster')]"
	w.proxy = object{"bootstrap": object{"type": "JSONPatch", "jsonPatches": []any{object{
		"op": "replace", "jsonPath": xds + ".load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address.port_value", "value": 18010,
	}}}}
	g := startGateway(t, w)
	peer.Eventually(t, patience, func() error {
		if len(g.Output.Lines("xds_cluster's loadAssigntment cannot be modified")) == 0 {
			return errors.New("Envoy Gateway does not refuse another address in xds_cluster")
		}
		return nil
	})

	file := filepath.Join(t.TempDir(), "relay.yaml")
	w.proxy = patched(t, file)
	g.Apply(w)
	r := startRelay(t, g)
	text, err := os.ReadFile(filepath.Join(examples, "endpoints.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(r.listen)
	const address = "{address: 10.96.0.18, port_value: 18000}"
	if !strings.Contains(string(text), address) {
		t.Fatalf("the example does not have %s", address)
	}
	text = []byte(strings.ReplaceAll(string(text), address, "{address: 127.0.0.1, port_value: "+port+"}"))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	realenvoy.Start(t, g.Bootstrap("eg", ""), realenvoy.Options{Name: "eg"}).WaitReady(patience)
	arrives(t, w.Address("eg"), "/", "eg")
	groups, err := r.Groups()
	if err != nil || len(groups) != 1 {
		t.Errorf("the relay has the groups %v, %v", groups, err)
	}
}

// patched is what the example's EnvoyProxy says of the bootstrap, but that it names
// another file.
func patched(t testing.TB, file string) object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, "envoyproxy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const mounted = "/etc/xds-relay/endpoints.yaml"
	if !strings.Contains(string(text), mounted) {
		t.Fatalf("the example does not name %s", mounted)
	}
	var proxy struct {
		Spec struct {
			Bootstrap object `json:"bootstrap"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), mounted, file)), &proxy); err != nil {
		t.Fatal(err)
	}
	return object{"bootstrap": proxy.Spec.Bootstrap}
}
