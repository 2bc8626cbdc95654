//go:build linux

package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// sotwClient speaks SotW, holds what it was sent, and asks for what it was told to ask
// for. It waits between streams as grpc-go does: 1 s, then 1.6 times as long each time, up
// to 2 min, with 20 % of jitter, and at once after a stream that carried something.
type sotwClient struct {
	node *core.Node
	conn *grpc.ClientConn
	all  *sotwFleet

	mu      sync.Mutex
	names   map[cache.TypeURL][]string // none: all of the type
	version map[cache.TypeURL]string
	nonce   map[cache.TypeURL]string // of the open stream
	stream  discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
}

// sotwFleet counts what such clients see.
type sotwFleet struct {
	complete  atomic.Int64 // (client, type) pairs that have an answer
	bytes     atomic.Int64 // of resources, versions and all
	responses atomic.Int64
	ended     [2]atomic.Int64 // streams, of gRPC's clients and of others
	denied    atomic.Int64    // names that a set has lost, or that an error says do not exist
}

func (c *sotwClient) isGRPC() int {
	if c.node.GetUserAgentName() == "envoy" {
		return 1
	}
	return 0
}

func (c *sotwClient) run(ctx context.Context) {
	backoff := time.Second
	for {
		heard := c.converse(ctx)
		if ctx.Err() != nil {
			return
		}
		c.all.ended[c.isGRPC()].Add(1)
		if heard {
			backoff = time.Second
			continue
		}
		if !pause(ctx, time.Duration(float64(backoff)*(0.8+0.4*rand.Float64()))) {
			return
		}
		backoff = min(2*time.Minute, time.Duration(1.6*float64(backoff)))
	}
}

// converse is one stream, from beginning to end.
func (c *sotwClient) converse(ctx context.Context) (heard bool) {
	s, err := discovery.NewAggregatedDiscoveryServiceClient(c.conn).StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		return false
	}
	c.mu.Lock()
	c.stream, c.nonce = s, make(map[cache.TypeURL]string)
	node := c.node
	for t := range c.names {
		_ = s.Send(c.request(t, node)) // a stream that is gone says so to its reader
		node = nil
	}
	c.mu.Unlock()
	for {
		resp, err := s.Recv()
		if err != nil {
			return heard
		}
		heard = true
		c.take(resp)
	}
}

// request is what it says of a type. c.mu is held.
func (c *sotwClient) request(t cache.TypeURL, node *core.Node) *discovery.DiscoveryRequest {
	return &discovery.DiscoveryRequest{Node: node, TypeUrl: string(t), VersionInfo: c.version[t], ResponseNonce: c.nonce[t], ResourceNames: c.names[t]}
}

func (c *sotwClient) take(resp *discovery.DiscoveryResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := cache.TypeURL(resp.GetTypeUrl())
	for _, r := range resp.GetResources() {
		c.all.bytes.Add(int64(len(r.GetValue())))
	}
	for _, e := range resp.GetResourceErrors() {
		if e.GetErrorDetail().GetCode() == 5 { // NOT_FOUND
			c.all.denied.Add(1)
		}
	}
	if len(resp.GetResources()) == 0 && len(resp.GetResourceErrors()) == 0 {
		c.all.denied.Add(1) // an empty set
	}
	c.all.responses.Add(1)
	if c.version[t] == "" {
		c.all.complete.Add(1)
	}
	c.version[t], c.nonce[t] = resp.GetVersionInfo(), resp.GetNonce()
	_ = c.stream.Send(c.request(t, nil))
}

// ask has it ask for a name more.
func (c *sotwClient) ask(t cache.TypeURL, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := maps.Clone(c.names)
	names[t] = append(append([]string(nil), names[t]...), name)
	c.names = names
	if c.stream != nil {
		_ = c.stream.Send(c.request(t, nil))
	}
}

// SotW clients of both kinds wait for a name that cannot be had, since the control plane is
// away: they keep what they hold, and nobody is sent that again and again (ERR-7,
// DOWN-SOTW-6, DOWN-SOTW-11).
func TestSotWClientsInAnOutage(t *testing.T) {
	clients, away, first := 40, 8*time.Second, 3*time.Second
	sets := []string{"timers.unavailable_after=500ms"}
	if long() {
		clients, away, first, sets = 10_000, 10*time.Minute, time.Minute, nil
	}
	r := begin(t, "SotWClientsInAnOutage", "10,000 SotW clients (gRPC's and others) each wait for one name that has no answer, the control plane is away for 10 min: after the first minute no byte of a resource is sent, and no stream of a client that is not gRPC's ends",
		"50 services. Half of the clients are gRPC's: a listener by name and its routes, one stream each, grpc-go's back-off. The others are like Envoy: all clusters, an endpoint assignment by name, a listener by name. When all have all, the control plane is killed, and each asks for one listener more, which nobody knows")
	h := newHistory(world{Seed: 1, Clusters: 20, Services: 50, Endpoints: 1, Backend: "127.0.0.1:1"})
	up := startUpstream(t, h)
	relay := startRelay(t, up.addr, sets...)
	fleet := &sotwFleet{}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	var all []*sotwClient
	var conn *grpc.ClientConn
	var wants int64
	for i := range clients {
		if i%100 == 0 {
			opened, err := grpc.NewClient(peer.Target(relay.Addr), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { opened.Close() })
			conn = opened
		}
		service := serviceName(i / 2 % 50)
		c := &sotwClient{
			node: &core.Node{Id: fmt.Sprintf("client-%d", i), UserAgentName: "gRPC Go"}, conn: conn, all: fleet,
			version: make(map[cache.TypeURL]string),
			names:   map[cache.TypeURL][]string{cache.Listener: {service}, cache.Route: {service + routesSuffix}},
		}
		if i%2 == 1 {
			c.node.UserAgentName = "envoy"
			c.names = map[cache.TypeURL][]string{cache.Listener: {service}, cache.Cluster: nil, cache.Endpoint: {service + clusterSuffix}}
		}
		wants += int64(len(c.names))
		all = append(all, c)
		work.Go(func() { c.run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		work.Wait()
	})
	complete := eventually(t, func() error {
		if n := fleet.complete.Load(); n < wants {
			return fmt.Errorf("%d of %d types have been answered", n, wants)
		}
		return nil
	})
	r.tell("clients", float64(clients), "")
	r.tell("complete after", seconds(complete), "s")

	up.Kill()
	before := [2]int64{fleet.ended[0].Load(), fleet.ended[1].Load()}
	for _, c := range all {
		c.ask(cache.Listener, "nobody-knows")
	}
	bytes, responses := fleet.bytes.Load(), fleet.responses.Load()
	pause(ctx, first)
	r.tell("resource bytes in the first minute, for each client", float64(fleet.bytes.Load()-bytes)/float64(clients), "B")
	r.tell("responses in the first minute, for each client", float64(fleet.responses.Load()-responses)/float64(clients), "")
	bytes, responses = fleet.bytes.Load(), fleet.responses.Load()
	ended := fleet.ended[0].Load()
	r.tell("streams of gRPC's clients that ended in the first minute, for each", float64(ended-before[0])/float64(clients/2), "")
	pause(ctx, away-first)
	r.none("resource bytes after it", fleet.bytes.Load()-bytes)
	r.tell("responses after it", float64(fleet.responses.Load()-responses), "")
	r.tell("streams of gRPC's clients that ended after it, for each", float64(fleet.ended[0].Load()-ended)/float64(clients/2), "")
	r.none("streams that ended of clients that are not gRPC's", fleet.ended[1].Load()-before[1])
	r.none("names denied, and sets emptied", fleet.denied.Load())
	if alarm := relay.Output.Alarm(); alarm != "" {
		t.Errorf("the relay says %s", alarm)
	}
}
