package session

import (
	"fmt"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestClusterDeliveriesAreForgotten: what is counted for a node lasts as long as its last stream, and no
// longer, however many nodes come and go, and whatever a client calls itself later (ORDER-5, G7).
func TestClusterDeliveriesAreForgotten(t *testing.T) {
	deliveries, hub := NewClusterDeliveries(), fanout.NewHub(fanout.Config{Linger: time.Minute})
	config := &Config{AckTimeout: time.Second, MaxName: 100, MaxNames: 100}
	open := func(node string) *Session {
		t.Helper()
		s := New(config, Stream{Type: cache.Cluster}, Peer{}, oneGroup{hub}, deliveries, func() {})
		say := func(node string) {
			if _, end := s.SotWRequest(&discovery.DiscoveryRequest{Node: &core.Node{Id: node}, TypeUrl: string(cache.Cluster)}, epoch); end != nil {
				t.Fatal(end)
			}
		}
		say(node)
		say(node + "-later")
		return s
	}
	stays := open("stays")
	for i := range 100 {
		open(fmt.Sprint("comes and goes ", i)).Close(epoch)
		other := open("stays")
		other.ofNode.deliveries.Add(1)
		other.Close(epoch)
	}
	if n := stays.ofNode.deliveries.Load(); n != 100 {
		t.Errorf("%d deliveries to a node that has had a stream all along, want 100", n)
	}
	if n := len(deliveries.nodes); n != 1 {
		t.Errorf("%d nodes are remembered, want the one that has a stream", n)
	}
	stays.Close(epoch)
	if n := len(deliveries.nodes); n != 0 {
		t.Errorf("%d nodes are remembered, and none has a stream", n)
	}
}
