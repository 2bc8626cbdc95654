package downstream

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestAllocationsPerDelivery guards what a change costs for each client: the work of its Session,
// the wire form, and the ACK. Counts are exact, unlike times.
func TestAllocationsPerDelivery(t *testing.T) {
	t.Run("wildcard", func(t *testing.T) {
		allocationsPerDelivery(t, fanout.Lane{Type: cache.Cluster, Wildcard: true}, nil, 5)
	})
	t.Run("names", func(t *testing.T) {
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("n%d", i))
		}
		allocationsPerDelivery(t, fanout.Lane{Type: cache.Endpoint}, names, 9)
	})
}

// allocationsPerDelivery changes one resource of many clients that subscribe to it.
func allocationsPerDelivery(t *testing.T, lane fanout.Lane, names []string, most float64) {
	const clients = 200
	hub := fanout.NewHub(fanout.Config{Linger: time.Second})
	version := 0
	change := func(name string) {
		version++
		body := &anypb.Any{TypeUrl: string(lane.Type), Value: fmt.Append(nil, version)}
		r := cache.NewResource(lane.Type, &discovery.Resource{Name: name, Version: fmt.Sprint(version), Resource: body}, cache.Fingerprint{})
		hub.Apply(lane, &cache.Update{Set: []cache.Received{{Resource: r}}, Synced: true, Source: cache.NewSource(epoch, nil)})
	}
	c := &session.Config{AckTimeout: time.Minute, MaxName: 100, MaxNames: 100}
	var sessions []*session.Session
	for range clients {
		s := session.New(c, session.Stream{Delta: true}, session.Peer{}, oneGroup{hub}, session.NewClusterDeliveries(), func() {})
		if _, end := s.DeltaRequest(&discovery.DeltaDiscoveryRequest{TypeUrl: string(lane.Type), ResourceNamesSubscribe: names}, epoch); end != nil {
			t.Fatal(end)
		}
		sessions = append(sessions, s)
	}
	for _, name := range names {
		change(name)
	}
	var ack session.Bare
	deliver := func() {
		change(cmp.Or(slices.Concat(names, []string{"n"})...))
		for _, s := range sessions {
			r, end := s.Next(epoch)
			if end != nil || r == nil {
				t.Fatal("nothing was told", end)
			}
			f := encode(r)
			if len(f.bufs) == 0 || s.Due() {
				t.Fatal("it was told nothing, or more is due")
			}
			ack.TypeURL, ack.Nonce = append(ack.TypeURL[:0], r.Type...), append(ack.Nonce[:0], r.Nonce...)
			if note, ok := s.Ack(&ack, epoch); !ok || note.Kind != session.AckRequest {
				t.Fatal("the ACK was not taken for one")
			}
		}
	}
	deliver()
	if got := testing.AllocsPerRun(20, deliver) / clients; got > most {
		t.Errorf("%.1f allocations for each client and change, at most %v are allowed", got, most)
	} else {
		t.Logf("%.1f allocations for each client and change", got)
	}
}
