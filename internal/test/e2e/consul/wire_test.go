package consul

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

const webNode = "web-sidecar-proxy"

// TestOnTheWire pins what Consul does, without a relay: section 22 of the contract and
// docs/control-planes.md say it on the strength of this.
func TestOnTheWire(t *testing.T) {
	m := startMesh(t)
	m.addNative("v1")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	stream, err := discovery.NewAggregatedDiscoveryServiceClient(dial(t, m.grpc, nil)).StreamAggregatedResources(ctx)
	if err == nil {
		_, err = stream.Recv()
	}
	t.Logf("SotW: %v", err)
	if status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "not implemented") {
		t.Errorf("SotW ends with %v", err)
	}
	_, err = healthpb.NewHealthClient(dial(t, m.grpc, nil)).Check(ctx, &healthpb.HealthCheckRequest{})
	t.Logf("Health/Check: %v", err)
	if err != nil && status.Code(err) != codes.Unimplemented {
		t.Errorf("Health/Check: %v", err)
	}

	p := startProbe(t, m.grpc, webNode, "")
	p.Hears("all Clusters, and no Listeners until these are acknowledged", []string{"CDS +api +local_app"}, subscribe("CDS"), subscribe("LDS"))
	api := p.full("CDS", "api")
	p.Hears("then Listeners", []string{"LDS +api +public_listener"}, p.ack("CDS"))
	p.Hears("the endpoints, and no route until these are acknowledged", []string{"EDS +api"},
		p.ack("LDS"), subscribe("EDS", api), subscribe("RDS", "api"))
	p.Hears("then the route", []string{"RDS +api"}, p.ack("EDS"))
	p.Hears("a name that is asked for again before it is acknowledged: silence", nothing, subscribe("RDS", "api"))
	p.Hears("which is lost", nothing, p.ack("RDS"))
	p.Hears("asked for again later: answered", []string{"RDS +api"}, subscribe("RDS", "api"))
	p.Hears("acknowledged: nothing more", nothing, p.ack("RDS"))
	p.Hears("a second acknowledgement of the same: nothing", nothing, p.ack("RDS"))
	p.Hears("asked again: answered", []string{"EDS +api"}, subscribe("EDS", api))
	p.Hears("unsubscribed: silence", nothing, p.ack("EDS"), unsubscribe("EDS", api))
	p.Hears("subscribed after that: answered", []string{"EDS +api"}, subscribe("EDS", api))
	p.Hears("a missing name: silence", nothing, p.ack("EDS"), subscribe("EDS", "nowhere"))
	p.Hears("a Cluster by name on the stream of a wildcard: silence", nothing, subscribe("CDS", api))
	p.Hears("an unknown type: silence", nothing, &discovery.DeltaDiscoveryRequest{TypeUrl: "type.googleapis.com/no.Such", ResourceNamesSubscribe: []string{"a"}})
	p.Hears("a Secret: silence", nothing, &discovery.DeltaDiscoveryRequest{
		TypeUrl: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", ResourceNamesSubscribe: []string{"a"},
	})

	m.split("v1")
	p.Hears("a turn of the route: first the new Cluster alone", []string{"CDS +v1"})
	p.Hears("its endpoints, though the Cluster is not acknowledged", []string{"EDS +v1"}, subscribe("EDS", p.full("CDS", "v1")))
	p.Hears("the Cluster acknowledged, the endpoints not: silence", nothing, p.ack("CDS"))
	p.Hears("both: the route, and at once the old Cluster goes, but not its endpoints", []string{"RDS +api", "CDS -api"}, p.ack("EDS"))
	p.Hears("acknowledged", nothing, p.ack("RDS"), p.ack("CDS"))

	m.split("api")
	p.Hears("back: the old Cluster, and its endpoints, still subscribed to", []string{"CDS +api", "EDS +api"})
	p.Hears("rejected: the stream goes on, and nothing is sent again", nothing, p.nack("CDS"))
	m.entry("service-resolver", "api", settings{"ConnectTimeout": "7s"})
	p.Hears("a change after a rejection: what was rejected, with the change", []string{"CDS +api"})

	star := startProbe(t, m.grpc, webNode, "")
	star.Hears("`*` is the name of nothing: one empty response", []string{"CDS"}, subscribe("CDS", "*"))
	star.Hears("and then silence", nothing, star.ack("CDS"))

	all := startProbe(t, m.grpc, webNode, "")
	all.Hears("all", []string{"CDS +api +local_app"}, subscribe("CDS"))
	again := startProbe(t, m.grpc, webNode, "")
	again.Hears("versions brought for a wildcard are honoured: an empty response", []string{"CDS"}, resume("CDS", all.Versions["CDS"]))
	again.Hears("versions brought for names that are asked for are not", []string{"EDS +api"}, again.ack("CDS"), resume("EDS", p.Versions["EDS"], api))
	stale := map[string]string{"gone": "1"}
	less := startProbe(t, m.grpc, webNode, "")
	less.Hears("what is brought and is not there is removed, after what is there", []string{"CDS +api +local_app"}, resume("CDS", stale))
	less.Hears("once that is acknowledged", []string{"CDS -gone"}, less.ack("CDS"))

	nobody := startProbe(t, m.grpc, "nobody", "")
	nobody.Hears("an unknown node: silence", nothing, subscribe("CDS"))
	nameless := startProbe(t, m.grpc, "", "")
	nameless.Hears("no node id: silence", nothing, subscribe("CDS"))

	for _, kind := range []string{"LDS", "CDS"} {
		if !slices.ContainsFunc(p.Got, func(r *discovery.DeltaDiscoveryResponse) bool {
			return r.GetTypeUrl() == typeURLs[kind] && strings.Contains(r.String(), "PRIVATE KEY")
		}) {
			t.Errorf("no private key in the %s: the example encrypts the snapshot for nothing", kind)
		}
	}
}

// TestRestartOnTheWire: a Consul that was started again makes new certificates, so that
// what has them in it has another version. What else it shows, and takes away for some
// seconds, depends on what it learns first, and is only logged.
func TestRestartOnTheWire(t *testing.T) {
	m := startMesh(t)
	p := startProbe(t, m.grpc, webNode, "")
	p.Says(subscribe("CDS"), subscribe("LDS"))
	p.Says(p.ack("CDS"))
	p.Says(p.ack("LDS"), subscribe("RDS", "api"), subscribe("EDS", p.full("CDS", "api")))
	for round := range 3 {
		m.Kill()
		m.Start()
		begin := time.Now()
		next := startProbe(t, m.grpc, webNode, "")
		requests := []*discovery.DeltaDiscoveryRequest{resume("CDS", p.Versions["CDS"]), resume("LDS", p.Versions["LDS"])}
		for time.Since(begin) < 12*time.Second {
			for _, said := range next.Says(requests...) {
				t.Logf("start %d, after %v: %s", round+1, time.Since(begin).Round(100*time.Millisecond), said)
			}
			requests = []*discovery.DeltaDiscoveryRequest{next.ack("CDS"), next.ack("LDS")}
		}
		for kind, name := range map[string]string{"CDS": "api", "LDS": "public_listener"} {
			full := p.full(kind, name)
			if now, sent := next.Versions[kind][full]; !sent || now == p.Versions[kind][full] {
				t.Errorf("start %d: %s %s has the version that it had", round+1, kind, name)
			}
		}
		for kind, versions := range p.Versions {
			for name, version := range versions {
				if _, sent := next.Versions[kind][name]; !sent && next.Versions[kind] != nil {
					next.Versions[kind][name] = version // it was not sent again
				}
			}
		}
		p = next
	}
}
