package downstream

import (
	"fmt"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestAllocationsPerDelivery guards what a change costs for each wildcard client: what
// its Session makes of it, its wire form, and its ACK. Counts are exact, unlike times.
func TestAllocationsPerDelivery(t *testing.T) {
	const clients, most = 200, 8
	hub := fanout.NewHub(fanout.Config{Linger: time.Second})
	lane := fanout.Lane{Type: cache.Cluster, Wildcard: true}
	version := 0
	change := func() {
		version++
		body := &anypb.Any{TypeUrl: string(cache.Cluster), Value: fmt.Append(nil, version)}
		r := cache.NewResource(cache.Cluster, &discovery.Resource{Name: "a", Version: fmt.Sprint(version), Resource: body}, cache.Fingerprint{})
		hub.Apply(lane, &cache.Update{Set: []cache.Received{{Resource: r}}, Synced: true})
	}
	c := &Config{AckTimeout: time.Minute, MaxName: 100, MaxNames: 100}
	var sessions []*Session
	for range clients {
		s := NewSession(c, Stream{Delta: true}, Peer{}, oneGroup{hub}, NewWarmth(), func() {})
		if _, end := s.DeltaRequest(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Cluster)}, epoch); end != nil {
			t.Fatal(end)
		}
		sessions = append(sessions, s)
	}
	var ack bare
	deliver := func() {
		change()
		for _, s := range sessions {
			r, end := s.Next(epoch)
			if end != nil || r == nil {
				t.Fatal("nothing was told", end)
			}
			f := encode(r)
			if len(f.bufs) == 0 || s.Due() {
				t.Fatal("it was told nothing, or more is due")
			}
			ack.typeURL, ack.nonce = append(ack.typeURL[:0], r.Type...), append(ack.nonce[:0], r.Nonce...)
			if note, ok := s.ack(&ack, epoch); !ok || note.Kind != AckRequest {
				t.Fatal("the ACK was not taken for one")
			}
		}
	}
	deliver()
	if got := testing.AllocsPerRun(20, deliver) / clients; got > most {
		t.Errorf("%.1f allocations for each client and change, at most %d are allowed", got, most)
	} else {
		t.Logf("%.1f allocations for each client and change", got)
	}
}
