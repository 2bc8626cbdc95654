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

	"github.com/xds-relay/xds-relay/internal/e2e/realenvoy"
)

// talk is a Delta stream on which a test says what it likes, without a client's good
// manners.
type talk struct {
	t      testing.TB
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	heard  chan *discovery.DeltaDiscoveryResponse
	end    error // why heard was closed
	nonces map[string]string
	// versions are those of all that came, by type and name.
	versions map[string]map[string]string
}

// startTalk opens a stream; the test's end ends it.
func startTalk(t testing.TB, g *gateway) *talk {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(dial(t, g, "127.0.0.1:"+xdsPort)).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	k := &talk{
		t: t, stream: stream, heard: make(chan *discovery.DeltaDiscoveryResponse, 1000),
		nonces: make(map[string]string), versions: make(map[string]map[string]string),
	}
	go func() {
		defer close(k.heard)
		for {
			r, err := stream.Recv()
			if err != nil {
				k.end = err
				return
			}
			k.heard <- r
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range k.heard {
		}
	})
	return k
}

// urls are the types by their short names.
var urls = map[string]string{
	"CDS":  "type.googleapis.com/envoy.config.cluster.v3.Cluster",
	"EDS":  "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
	"LDS":  "type.googleapis.com/envoy.config.listener.v3.Listener",
	"RDS":  "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
	"SDS":  "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
	"VHDS": "type.googleapis.com/envoy.config.route.v3.VirtualHost",
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
			r.ResponseNonce = k.nonces[words[0]]
		default:
			k.t.Fatalf("what is %q?", w)
		}
	}
	for _, change := range more {
		change(r)
	}
	_ = k.stream.Send(r) // what is wrong is said to the receiver
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
		select {
		case r, ok := <-k.heard:
			if !ok {
				got = append(got, "end "+status.Code(k.end).String())
				break
			}
			got = append(got, k.takes(r))
			continue
		case <-time.After(limit):
		}
		if !slices.Equal(got, want) {
			k.t.Errorf("heard %q, want %q", got, want)
		}
		return
	}
}

func (k *talk) takes(r *discovery.DeltaDiscoveryResponse) string {
	name := short(r.GetTypeUrl())
	k.nonces[name] = r.GetNonce()
	if k.versions[name] == nil {
		k.versions[name] = make(map[string]string)
	}
	words := []string{}
	for _, res := range r.GetResources() {
		k.versions[name][res.GetName()] = res.GetVersion()
		words = append(words, "+"+res.GetName())
	}
	for _, gone := range r.GetRemovedResources() {
		words = append(words, "-"+gone)
	}
	slices.Sort(words)
	return strings.Join(append([]string{name}, words...), " ")
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
		k.Says("CDS +*", as(own), having(first.versions["CDS"]))
		k.Says("EDS +"+cluster, having(first.versions["EDS"]))
		k.Hears("CDS") // an empty answer to a wildcard, none to names

		k = startTalk(t, g)
		k.Says("CDS +*", as(own), having(map[string]string{cluster: "another", absent: "old"}))
		k.Says("EDS +"+cluster+" +"+absent, having(map[string]string{cluster: first.versions["EDS"][cluster], absent: "old"}))
		k.Hears("CDS +"+cluster+" -"+absent, "EDS -"+absent)

		g.Kill()
		g.Start()
		startEnvoy(t, g, "eg", "127.0.0.1:"+xdsPort).WaitReady(patience)
		k = startTalk(t, g)
		k.Says("CDS +*", as(own), having(first.versions["CDS"]))
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
		again.Says("CDS +*", as(late), having(k.versions["CDS"]))
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
		g.ending.Store(true)
		k.Says("CDS +*")
		k.Hears("end Unavailable")
		eventually(t, patience, func() error {
			if !g.gone() {
				return errors.New("Envoy Gateway survives a request without a node")
			}
			return nil
		})
	})
}
