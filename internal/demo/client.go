package demo

import (
	"context"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/cache"
)

// client is one client of the relay, with a connection of its own. What it holds
// outlives its streams, as it does in a real one.
type client struct {
	name     string
	sotw     bool     // speaks SotW, as gRPC does; else Delta, as Envoy does
	services []string // what it uses; a Delta client is sent everything
	stats    *stats

	// Owned by the story: whether it runs.
	cancel context.CancelFunc
	ended  chan struct{}

	mu        sync.Mutex
	connected bool
	held      map[key]held
	versions  map[cache.TypeURL]string // version_info of the last SotW responses
	visit     visit
}

// held is a client's copy of a resource.
type held struct {
	version string
	content
}

// visit counts what passed on the stream that is open, or was the last.
type visit struct {
	versions  int // resources that the client told it has already
	resources int // resources it was sent
	again     int // of these, how many it had already, as they were
}

func newClient(name string, sotw bool, services []string, s *stats) *client {
	return &client{
		name: name, sotw: sotw, services: services, stats: s,
		held: make(map[key]held), versions: make(map[cache.TypeURL]string),
	}
}

// Start connects, and stays connected until Stop.
func (c *client) Start(target string) error {
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.ended = cancel, make(chan struct{})
	go func() {
		defer close(c.ended)
		defer conn.Close()
		c.run(ctx, discovery.NewAggregatedDiscoveryServiceClient(conn))
	}()
	return nil
}

// Leave ends the connection, without a word to the relay.
func (c *client) Leave() {
	if c.cancel != nil {
		c.cancel()
	}
}

// Stop is Leave, and waits until all is still.
func (c *client) Stop() {
	c.Leave()
	if c.ended != nil {
		<-c.ended
	}
	c.cancel, c.ended = nil, nil
}

// clientRetry is how soon a client whose stream ended opens another one.
const clientRetry = 200 * time.Millisecond

func (c *client) run(ctx context.Context, service discovery.AggregatedDiscoveryServiceClient) {
	for {
		// Only the number of ended streams is counted, not the reasons.
		if c.sotw {
			_ = c.streamSotW(ctx, service)
		} else {
			_ = c.streamDelta(ctx, service)
		}
		c.setConnected(false)
		if ctx.Err() != nil {
			return
		}
		c.stats.lost.Add(1)
		if !wait(ctx, clientRetry) {
			return
		}
	}
}

func (c *client) setConnected(is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connected = is
	if is {
		c.visit = visit{}
	}
}

// Connected reports whether the client has a stream.
func (c *client) Connected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connected
}

// Visit is what passed on the last stream.
func (c *client) Visit() visit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.visit
}

// Uses reports whether a change of the resource should reach the client.
func (c *client) Uses(k key) bool {
	for _, s := range c.services {
		if s == k.name {
			return true
		}
	}
	return false
}

// Missing is how many resources the client does not have as the control plane has
// them now.
func (c *client) Missing(cp *controlPlane) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range types {
		for _, name := range c.services {
			k := key{t, name}
			h, ok := c.held[k]
			if changes := t == cache.Cluster || t == cache.Endpoint; !ok || changes && h.revision != cp.Revision(k) {
				n++
			}
		}
	}
	return n
}

func (c *client) node() *core.Node {
	agent := "demo-envoy"
	if c.sotw {
		agent = "demo-grpc"
	}
	return &core.Node{Id: c.name, Cluster: "demo", UserAgentName: agent}
}

// take keeps a resource. The caller holds mu.
func (c *client) take(t cache.TypeURL, version string, body []byte) (name string, err error) {
	content, err := decode(t, body)
	if err != nil {
		return "", err
	}
	k := key{t, content.name}
	if old, had := c.held[k]; had && !c.sotw && old.version == version {
		c.visit.again++
	}
	c.held[k] = held{version, content}
	c.visit.resources++
	c.stats.Got(c, k, content.revision)
	return content.name, nil
}

// referred are the names of a type that what the client holds leads to. The caller
// holds mu.
func (c *client) referred(t cache.TypeURL) map[string]bool {
	names := make(map[string]bool)
	for k, h := range c.held {
		if references[k.typ] == t && h.refers != "" {
			names[h.refers] = true
		}
	}
	return names
}

func nack(err error) *status.Status {
	if err == nil {
		return nil
	}
	return &status.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
}
