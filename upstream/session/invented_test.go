package session

import (
	"fmt"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestInventedTypesAreForgotten: of types that clients invent nothing is remembered for long
// when nobody wants them any more, however long the stream lasts; of those of which the server
// has sent something it is (VALID-9, UP-4).
func TestInventedTypesAreForgotten(t *testing.T) {
	defer func(before int) { maxUsed = before }(maxUsed)
	maxUsed = 20
	d := newDesk(t, Config{SettleCap: time.Second, Entries: []Entry{{Name: "up", Mode: ModeDelta}}})
	passing := func(typ cache.TypeURL, answer bool) {
		s := d.hub.Subscribe(typ, fanout.NewSubscriber(func() {}))
		s.Delta([]string{"a"}, nil, d.now)
		d.settle()
		if answer {
			d.answer(typ, []string{"a"})
		}
		s.Close(d.now)
		d.settle()
		d.now = d.now.Add(time.Second / 2)
	}
	d.settle()
	passing(cache.Endpoint, true)
	for i := range 10 * maxUsed {
		passing(cache.TypeURL(fmt.Sprint("invented.", i)), false)
	}
	d.settle()
	s := d.core.main.stream
	if n := len(s.used); n > maxUsed+3 {
		t.Errorf("%d types are remembered, want about %d", n, maxUsed)
	}
	if len(s.lanes) != 0 {
		t.Errorf("%d types are asked for, want none", len(s.lanes))
	}
	if s.used[cache.Endpoint] == nil {
		t.Error("what the server has sent is forgotten")
	}
	if n := len(d.core.unavailable) + len(d.core.accepted) + len(d.core.silent) + len(d.core.suspects.strikes); n != 0 {
		t.Errorf("%d things are remembered of types that nobody wants", n)
	}
}

// TestATypeIsRememberedUntilItsResponseIsAcknowledged: a response may come late, of a type that nobody
// wants any more, while another type is given up before it was asked for (UP-4).
func TestATypeIsRememberedUntilItsResponseIsAcknowledged(t *testing.T) {
	defer func(before int) { maxUsed = before }(maxUsed)
	maxUsed = 0
	d := newDesk(t, Config{SettleCap: time.Second, Entries: []Entry{{Name: "up", Mode: ModeDelta}}})
	wants := func(typ cache.TypeURL) *fanout.Subscription {
		s := d.hub.Subscribe(typ, fanout.NewSubscriber(func() {}))
		s.Delta([]string{"a"}, nil, d.now)
		d.settle()
		return s
	}
	invented := wants("invented.0")
	invented.Close(d.now)
	d.settle()
	d.settle() // the lane goes when its unsubscribe is written
	d.now = d.now.Add(2 * time.Second)
	late := Decode(&discovery.DeltaDiscoveryResponse{TypeUrl: "invented.0", Nonce: "n", RemovedResources: []string{"a"}}, cache.Fingerprint{})
	d.core.Receive(d.id, late, d.now)
	other := wants("invented.1")
	other.Close(d.now)
	d.settle()
	d.core.Applied(d.id, late, d.now)
	if req, _ := d.core.Next(d.id, d.now).(*discovery.DeltaDiscoveryRequest); req.GetResponseNonce() != "n" {
		t.Errorf("%v is written, and no ACK", req)
	}
}
