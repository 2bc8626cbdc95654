package envoygateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// talk is a stream on which a test says what it likes, in words.
type talk struct {
	*peer.Talk
	t testing.TB
}

// startTalk opens a stream; the test's end ends it.
func startTalk(t testing.TB, g *gateway) *talk {
	t.Helper()
	return &talk{peer.StartTalk(context.Background(), t, dial(t, g, "127.0.0.1:"+xdsPort)), t}
}

// urls are the types by their short names.
var urls = map[string]string{
	"CDS": string(cache.Cluster), "EDS": string(cache.Endpoint), "LDS": string(cache.Listener),
	"RDS": string(cache.Route), "SDS": string(cache.Secret), "VHDS": string(cache.VirtualHost),
}

// Says sends a request of a type: +name subscribes, -name unsubscribes, ack and nack
// answer the last response of the type. What is to be in it besides, more puts there.
func (k *talk) Says(line string, more ...func(*discovery.DeltaDiscoveryRequest)) {
	k.t.Helper()
	words := strings.Fields(line)
	r := &discovery.DeltaDiscoveryRequest{TypeUrl: urls[words[0]]}
	for _, w := range words[1:] {
		switch {
		case w[0] == '+':
			r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, w[1:])
		case w[0] == '-':
			r.ResourceNamesUnsubscribe = append(r.ResourceNamesUnsubscribe, w[1:])
		case w == "nack":
			r.ErrorDetail = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: "not to my taste"}
			fallthrough
		case w == "ack":
			r.ResponseNonce = k.Nonces[words[0]]
		default:
			k.t.Fatalf("what is %q?", w)
		}
	}
	for _, change := range more {
		change(r)
	}
	k.Send(r)
}

// talks counts those that said who they are: each is another.
var talks int

// as is a node that says who it is.
func as(cluster string) func(*discovery.DeltaDiscoveryRequest) {
	talks++
	id := fmt.Sprintf("talk-%d", talks)
	return func(r *discovery.DeltaDiscoveryRequest) { r.Node = &core.Node{Id: id, Cluster: cluster} }
}

// having shows versions.
func having(versions map[string]string) func(*discovery.DeltaDiscoveryRequest) {
	return func(r *discovery.DeltaDiscoveryRequest) { r.InitialResourceVersions = versions }
}

// silence is how long nothing comes from a server that has nothing to say.
const silence = time.Second

// Hears fails the test if what comes, until nothing more does, is something else. A
// response is its type, +name for what came, -name for what went.
func (k *talk) Hears(want ...string) {
	k.t.Helper()
	got := []string{}
	for {
		limit := silence
		if len(got) < len(want) {
			limit = patience
		}
		words, err := k.Hear(limit)
		if err != nil {
			words = "end " + status.Code(err).String()
		}
		if words != "" {
			got = append(got, words)
		}
		if words == "" || err != nil {
			break
		}
	}
	if !slices.Equal(got, want) {
		k.t.Errorf("heard %q, want %q", got, want)
	}
}

// What Envoy Gateway does on the wire: section 22 of the contract.
func TestGateway_OnTheWire(t *testing.T) {
	w := newWorld(t, "eg")
	w.backends["blue"] = realenvoy.Backend(t, "blue")
	g := startGateway(t, w)
	const (
		own              = namespace + "/eg"
		cluster, blue    = "httproute/default/eg/rule/0", "httproute/default/blue/rule/0"
		listener, routes = own + "/http", own + "/http"
		absent           = "httproute/default/nobody/rule/0"
		ready            = " +" + readiness
	)
	startEnvoy(t, g, "eg", "127.0.0.1:"+xdsPort).WaitReady(patience) // all is there now

	t.Run("Names", func(t *testing.T) {
		k := startTalk(t, g)
		k.Says("CDS +*", as(own))
		k.Hears("CDS +" + cluster)
		k.Says("CDS ack")
		k.Says("EDS +" + cluster + " +" + absent)
		k.Hears("EDS +" + cluster)
		k.Says("EDS ack")
		k.Says("EDS +" + absent)
		k.Says("EDS +" + cluster)
		k.Hears() // it has said that already
		k.Says("EDS -" + cluster)
		k.Says("EDS +" + cluster)
		k.Hears("EDS +" + cluster) // it had forgotten
		k.Says("EDS ack")
		k.Says("EDS -" + cluster + " +" + cluster)
		k.Says("EDS +" + cluster)
		k.Hears("EDS +" + cluster) // in both lists it is unsubscribed
		k.Says("EDS ack")
		k.Says("VHDS +nobody/nobody")
		k.Hears()
	})

	t.Run("Changes", func(t *testing.T) {
		k := startTalk(t, g)
		k.Says("CDS +*", as(own))
		k.Says("EDS +" + cluster)
		k.Says("LDS +*")
		k.Says("RDS +" + routes)
		k.Hears("CDS +"+cluster, "EDS +"+cluster, "LDS +"+listener+ready, "RDS +"+routes)
		for _, name := range []string{"CDS", "EDS", "LDS", "RDS"} {
			k.Says(name + " ack")
		}
		w.routes = append(w.routes, route{name: "blue", gateway: "eg", prefix: "/blue", to: "blue"})
		g.Apply(w)
		// All at once, clusters first; the listener each time, with the fields of its access
		// log in another order.
		k.Hears("CDS +"+blue, "LDS +"+listener, "RDS +"+routes)
		k.Says("EDS +" + blue)
		k.Hears("EDS +" + blue)
		witness := startTalk(t, g)
		witness.Says("RDS +"+routes, as(own))
		witness.Hears("RDS +" + routes)
		witness.Says("RDS ack")
		w.routes = w.routes[:1]
		g.Apply(w)
		witness.Hears("RDS +" + routes)
		k.Hears() // nothing of the type comes before its ACK
		k.Says("CDS nack")
		k.Hears("CDS -" + blue)
		k.Says("LDS ack")
		k.Hears("LDS +" + listener)
		k.Says("RDS ack")
		k.Hears("RDS +" + routes)
		k.Says("EDS ack")
		k.Hears("EDS -" + blue) // a name that goes is told, though it is subscribed
	})

	t.Run("Versions", func(t *testing.T) {
		first := startTalk(t, g)
		first.Says("CDS +*", as(own))
		first.Says("EDS +" + cluster)
		first.Hears("CDS +"+cluster, "EDS +"+cluster)

		k := startTalk(t, g)
		k.Says("CDS +*", as(own), having(first.Versions["CDS"]))
		k.Says("EDS +"+cluster, having(first.Versions["EDS"]))
		k.Hears("CDS") // an empty answer to a wildcard, none to names

		k = startTalk(t, g)
		k.Says("CDS +*", as(own), having(map[string]string{cluster: "another", absent: "old"}))
		k.Says("EDS +"+cluster+" +"+absent, having(map[string]string{cluster: first.Versions["EDS"][cluster], absent: "old"}))
		k.Hears("CDS +"+cluster+" -"+absent, "EDS -"+absent)

		g.Kill()
		g.Start()
		startEnvoy(t, g, "eg", "127.0.0.1:"+xdsPort).WaitReady(patience)
		k = startTalk(t, g)
		k.Says("CDS +*", as(own), having(first.Versions["CDS"]))
		k.Hears("CDS") // another process has the same versions
	})

	t.Run("WrongCluster", func(t *testing.T) {
		const late, lateCluster = namespace + "/late", "httproute/default/late/rule/0"
		port, before := freePort(t), w.routes
		exists := func(yes bool) {
			delete(w.gateways, "late")
			w.routes = before
			if yes {
				w.gateways["late"] = port
				w.routes = append(before[:len(before):len(before)], route{name: "late", gateway: "late", prefix: "/", to: "blue"})
			}
			g.Apply(w)
		}
		k := startTalk(t, g)
		k.Says("CDS +*", as(late))
		k.Says("LDS +*")
		k.Hears()
		exists(true)
		k.Hears("CDS +"+lateCluster, "LDS +"+late+"/http"+ready)

		// Gone, and back as it was: who has it all already hears nothing.
		k.Says("CDS ack")
		exists(false)
		k.Hears("CDS -" + lateCluster)
		again := startTalk(t, g)
		again.Says("CDS +*", as(late), having(k.Versions["CDS"]))
		again.Hears()
		k.Says("CDS ack")
		exists(true)
		k.Hears("CDS +" + lateCluster)
		again.Hears()
		exists(false)
	})

	t.Run("HealthCheck", func(t *testing.T) {
		_, err := healthpb.NewHealthClient(dial(t, g, "127.0.0.1:"+xdsPort)).Check(t.Context(), &healthpb.HealthCheckRequest{})
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("a check is answered %v", err)
		}
	})

	// Not tried on a relay's stream: it always says who it is.
	t.Run("WithoutNode", func(t *testing.T) {
		k := startTalk(t, g)
		g.MayCrash()
		k.Says("CDS +*")
		k.Hears("end Unavailable")
		peer.Eventually(t, patience, func() error {
			if !g.Gone() {
				return errors.New("Envoy Gateway survives a request without a node")
			}
			return nil
		})
	})
}
