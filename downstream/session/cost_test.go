package session

import (
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// What a change costs, from the upstream response to what a client is sent: these answer in a
// minute whether a change of the code has made it more expensive. What many names cost others is
// BenchmarkUnderLock, and what all of it costs on the wire is bench.

// BenchmarkApply measures an upstream response with one of 1,000 clusters that 100 clients watch.
func BenchmarkApply(b *testing.B) {
	w := watched(b)
	for range 100 {
		w.client(&discovery.DeltaDiscoveryRequest{}).rest()
	}
	updates := w.updates()
	for i := 0; b.Loop(); i++ {
		w.hub.Apply(fanout.Lane{Type: w.url, Wildcard: true}, updates[i%2])
	}
}

// BenchmarkLateClient measures the first response to a client that comes with all 1,000 clusters,
// one of which has changed since: the difference between two sets.
func BenchmarkLateClient(b *testing.B) {
	w := watched(b)
	held := w.changes(members)
	w.hub.Apply(fanout.Lane{Type: w.url, Wildcard: true}, w.updates()[0])
	for b.Loop() {
		c := w.client(&discovery.DeltaDiscoveryRequest{InitialResourceVersions: held})
		if !c.next() {
			b.Fatal("nothing to tell")
		}
		c.Close(epoch)
	}
}

// BenchmarkNext measures the next response to a client that watches 1,000 clusters, and its ACK.
func BenchmarkNext(b *testing.B) {
	w := watched(b)
	c := w.client(&discovery.DeltaDiscoveryRequest{})
	c.rest()
	updates := w.updates()
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		w.hub.Apply(fanout.Lane{Type: w.url, Wildcard: true}, updates[i%2])
		b.StartTimer()
		if !c.next() {
			b.Fatal("nothing to tell")
		}
		c.asks(&discovery.DeltaDiscoveryRequest{ResponseNonce: c.nonce})
	}
}

// watched is a world with 1,000 clusters and a client that keeps them.
func watched(b *testing.B) *crowd {
	w := &crowd{b: b, url: cache.Cluster, n: 1000, hub: fanout.NewHub(fanout.Config{Convergence: fanout.NewConvergence()})}
	w.client(&discovery.DeltaDiscoveryRequest{})
	w.changes(members)
	b.ReportAllocs()
	return w
}

// updates change one of them, and change it back.
func (w *crowd) updates() (updates [2]*cache.Update) {
	for i, version := range []string{"other", "another"} {
		updates[i] = &cache.Update{Source: cache.NewSource(epoch, nil), Set: []cache.Received{{Resource: w.resource("r-0000000", version)}}}
	}
	return updates
}
