package page

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlspb "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/relay"
)

const (
	cds = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	eds = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	sds = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

// planted is in the body of a secret that a client has. No view may show it.
const planted = "planted-private-key-9f2c"

// world is a relay with its page, between a control plane and clients.
type world struct {
	t     testing.TB
	plane *plane
	relay *relay.Relay
	addr  string // of the relay
	url   string // of the page, without / at the end
	ctx   context.Context

	conns   []*grpc.ClientConn
	streams atomic.Int32
	clients sync.WaitGroup
}

// behaviour is how a client answers.
type behaviour int

const (
	accepts behaviour = iota
	rejects           // a cluster with the timeout 66 s
	deaf              // it does not answer clusters after the first ones
)

var services = []string{"cart", "checkout", "search", "payments", "users", "media", "mail", "stock", "prices", "reviews", "offers", "shipping"}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, plane: startPlane(t)}
	ctx, cancel := context.WithCancel(t.Context())
	w.ctx = ctx
	t.Cleanup(func() {
		cancel()
		for _, c := range w.conns {
			c.Close()
		}
		w.clients.Wait()
	})
	all := make(map[string]proto.Message)
	for _, s := range services {
		all[s] = cluster(s, 1)
	}
	w.plane.put(1, all)
	all = make(map[string]proto.Message)
	for _, s := range services {
		all[s] = &endpointpb.ClusterLoadAssignment{ClusterName: s}
	}
	w.plane.put(1, all)
	w.plane.put(1, map[string]proto.Message{"server-key": &tlspb.Secret{Name: "server-key", Type: &tlspb.Secret_TlsCertificate{TlsCertificate: &tlspb.TlsCertificate{
		PrivateKey: &corepb.DataSource{Specifier: &corepb.DataSource_InlineString{InlineString: planted}},
	}}}})
	w.start()
	return w
}

func cluster(name string, seconds int) *clusterpb.Cluster {
	return &clusterpb.Cluster{Name: name, ConnectTimeout: durationpb.New(time.Duration(seconds) * time.Second), AltStatName: "mesh_" + name}
}

func (w *world) start() {
	w.t.Helper()
	c, err := config.Load("", []string{"upstream.address=" + w.plane.addr, "admin.listen=127.0.0.1:0", "upstream.node.id=edge-1", "upstream.backoff.initial=3s", "cache.mass_removal_guard.fraction=0.5", "cache.mass_removal_guard.min=2", "admin.stale_after=1s", "cache.snapshot.dir=" + w.t.TempDir()})
	if err != nil {
		w.t.Fatal(err)
	}
	metrics := admin.NewMetrics(admin.ReadBuild("1.4.0"))
	ring := events.NewRing(metrics.EventPublished)
	log := slog.New(slog.DiscardHandler)
	if w.relay, err = relay.New(c, relay.Options{Log: log, Upstream: metrics, Downstream: metrics, Snapshot: metrics, Received: metrics, Convergence: metrics, Events: ring}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { w.relay.Close(0) })
	metrics.Attach(w.relay)
	down, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.addr = down.Addr().String()
	w.relay.Serve(down)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	s := admin.Serve(l, admin.NewHandler(w.relay, metrics, admin.HandlerOptions{Host: "127.0.0.1", Log: log, Events: ring, Watch: events.NewWatch()}), log)
	w.t.Cleanup(s.Close)
	w.url = "http://" + l.Addr().String()
}

// perConn is how many streams share a connection.
const perConn = 100

// connect opens a client's stream, and answers on it.
func (w *world) connect(node, cluster string, how behaviour, secret bool) {
	w.t.Helper()
	n := int(w.streams.Add(1) - 1)
	if n/perConn == len(w.conns) {
		conn, err := grpc.NewClient("passthrough:///"+w.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			w.t.Fatal(err)
		}
		w.conns = append(w.conns, conn)
	}
	s, err := discovery.NewAggregatedDiscoveryServiceClient(w.conns[n/perConn]).DeltaAggregatedResources(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	first := &corepb.Node{Id: node, Cluster: cluster}
	_ = s.Send(&discovery.DeltaDiscoveryRequest{Node: first, TypeUrl: cds})
	_ = s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: eds, ResourceNamesSubscribe: []string{services[n%len(services)], services[(n+5)%len(services)], "no-such-service"}[:2+n%7/6]})
	if secret {
		_ = s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: sds, ResourceNamesSubscribe: []string{"server-key"}})
	}
	w.clients.Go(func() { answer(s, how) })
}

func answer(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, how behaviour) {
	for clusters := 0; ; {
		resp, err := s.Recv()
		if err != nil {
			return
		}
		ack := &discovery.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()}
		if resp.GetTypeUrl() == cds {
			clusters++
			if how == deaf && clusters > 1 {
				continue
			}
			if how == rejects && poisoned(resp) {
				ack.ErrorDetail = &statuspb.Status{Code: 13, Message: "Error adding/updating cluster(s) checkout: no such transport socket 'envoy.transport_sockets.starttls' <b>&\n\tconnect_timeout 66s exceeds the maximum of 30s"}
			}
		}
		if s.Send(ack) != nil {
			return
		}
	}
}

func poisoned(resp *discovery.DeltaDiscoveryResponse) bool {
	for _, r := range resp.GetResources() {
		var c clusterpb.Cluster
		if r.GetResource().UnmarshalTo(&c) == nil && c.GetConnectTimeout().GetSeconds() == 66 {
			return true
		}
	}
	return false
}

// fleet connects so many clients: of each hundred one rejects, and two do not answer; of twenty there is one of each.
func (w *world) fleet(n int) {
	w.t.Helper()
	for i := range n {
		how := accepts
		switch {
		case i%97 == 6:
			how = rejects
		case i%61 == 11, i%89 == 13:
			how = deaf
		}
		s := services[i*7%len(services)]
		w.connect(fmt.Sprintf("sidecar~10.4.%d.%d~%s-%x~shop.svc", i/250, i%250, s, 0x5f3a+i*2657), s, how, i == 2)
	}
	w.until("all clients are served", func() bool { return w.relay.Count() == n && w.synced() >= n-1 })
}

func (w *world) synced() int { return w.relay.Summary().Sync["synced"] }

// poison gives one cluster what some clients reject.
func (w *world) poison() {
	w.plane.put(66, map[string]proto.Message{"checkout": &clusterpb.Cluster{Name: "checkout", ConnectTimeout: durationpb.New(66 * time.Second), AltStatName: "mesh_checkout_v2", LbPolicy: clusterpb.Cluster_LEAST_REQUEST}})
}

// until waits for something, for two minutes at most.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); !is(); {
		if <-tick.C; time.Now().After(end) {
			w.t.Fatalf("in vain: %s", strings.TrimSpace(what))
		}
	}
}

// endpoints are those of a service, which differ with n.
func endpoints(service string, n int) *endpointpb.ClusterLoadAssignment {
	return &endpointpb.ClusterLoadAssignment{ClusterName: service, Endpoints: []*endpointpb.LocalityLbEndpoints{{
		LbEndpoints: []*endpointpb.LbEndpoint{{HostIdentifier: &endpointpb.LbEndpoint_Endpoint{Endpoint: &endpointpb.Endpoint{
			Address: &corepb.Address{Address: &corepb.Address_SocketAddress{SocketAddress: &corepb.SocketAddress{Address: fmt.Sprintf("10.9.0.%d", n), PortSpecifier: &corepb.SocketAddress_PortValue{PortValue: 8080}}}},
		}}}},
	}}}
}
