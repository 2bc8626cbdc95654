package envoy

import (
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// An Envoy with a list of xDS servers of its own (xds_failover_support) turns from a relay that is
// cut off from its control plane, and has nothing for it, to the next server (ERR-7). Envoy turns only
// when its first server's streams end.
func TestOwnList(t *testing.T) {
	for _, w := range variants(way{relays: 1}) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			m := w.makes()
			s := play(t, w, m.service("a", realenvoy.Backend(t, "a")), "timers.unavailable_after=500ms")
			s.plane.Stop()
			next := newPlane(t, m.service("b", realenvoy.Backend(t, "b"))).Start()

			b := realenvoy.ADS(realenvoy.Node{ID: "envoy", Cluster: "e2e"}, realenvoy.Source{Target: s.tap.Addr, SotW: w.sotw})
			addServer(b, next.addr, w.sotw)
			e := realenvoy.Start(t, b, realenvoy.Options{Name: "envoy"})
			e.WaitReady(patience)
			address := listens(t, e, "web")
			peer.Eventually(t, patience, func() error { return answers(address, "b") })

			// Another Envoy finds what the relay has, and stays.
			s.plane.Start()
			_, address = s.ready("stays", "a")
			peer.Throughout(t, 2*time.Second, func() error { return answers(address, "a") })
		})
	}
}

// addServer adds an xDS server to the one of a bootstrap, for Envoy to turn to. Envoy makes clusters in
// the order of their names, and turns at once if that of its first server is not there yet.
func addServer(b realenvoy.Bootstrap, target string, sotw bool) {
	other := realenvoy.ADS(realenvoy.Node{}, realenvoy.Source{Target: target, SotW: sotw})
	const name = "xds-source-next"
	cluster := other["static_resources"].(realenvoy.Object)["clusters"].([]any)[0].(realenvoy.Object)
	cluster["name"] = name
	static := b["static_resources"].(realenvoy.Object)
	static["clusters"] = append(static["clusters"].([]any), cluster)

	services := func(b realenvoy.Bootstrap) []any {
		return b["dynamic_resources"].(realenvoy.Object)["ads_config"].(realenvoy.Object)["grpc_services"].([]any)
	}
	next := services(other)[0].(realenvoy.Object)
	next["envoy_grpc"].(realenvoy.Object)["cluster_name"] = name
	b["dynamic_resources"].(realenvoy.Object)["ads_config"].(realenvoy.Object)["grpc_services"] = append(services(b), next)
	b["layered_runtime"] = realenvoy.Object{"layers": []any{realenvoy.Object{
		"name": "static", "static_layer": realenvoy.Object{"envoy.restart_features.xds_failover_support": true},
	}}}
}
