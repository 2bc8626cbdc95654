package envoygateway

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/internal/e2e/realenvoy"
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

// A bootstrap of one's own may change much, and not where xDS comes from, which is why
// relay.yaml says how else an Envoy comes to a relay.
func TestGateway_Bootstrap(t *testing.T) {
	w := newWorld(t, "eg")
	w.proxy = object{"bootstrap": object{"type": "JSONPatch", "jsonPatches": []any{object{
		"op": "replace", "value": 18010,
		"jsonPath": "$.static_resources.clusters[?(@.name=='xds_cluster')].load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address.port_value",
	}}}}
	g := startGateway(t, w)
	eventually(t, patience, func() error {
		if len(g.output.Lines("xds_cluster's loadAssigntment cannot be modified")) == 0 {
			return errors.New("Envoy Gateway does not refuse another address in xds_cluster")
		}
		return nil
	})
}
