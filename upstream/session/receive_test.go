package session

import (
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestALaneThatIsLeftIsNotReopened: a type may be taken off a stream after a response that repeats
// what the server was shown (RECON-13), and before the ACK of that response.
func TestALaneThatIsLeftIsNotReopened(t *testing.T) {
	d := newDesk(t, Config{Entries: []Entry{{Name: "up", Mode: ModeDelta}}})
	d.hub.Subscribe(cache.Cluster, fanout.NewSubscriber(func() {})).Delta([]string{fanout.Wildcard}, nil, d.now)
	d.settle()
	r := Decode(&discovery.DeltaDiscoveryResponse{TypeUrl: string(cache.Cluster), Nonce: "n"}, cache.Fingerprint{})
	d.core.Receive(d.id, r, d.now)
	r.repeats = true
	d.core.main.stream.drop(cache.Cluster, d.now)
	d.core.Applied(d.id, r, d.now)
	if req, _ := d.core.Next(d.id, d.now).(*discovery.DeltaDiscoveryRequest); req.GetResponseNonce() != "n" {
		t.Errorf("%v is written, and no ACK", req)
	}
}

// TestAnAckGoesBeforeWhatItsResponseLeadsTo: clients may react before the response is taken in (UP-4).
func TestAnAckGoesBeforeWhatItsResponseLeadsTo(t *testing.T) {
	d := newDesk(t, Config{Entries: []Entry{{Name: "up", Mode: ModeDelta}}})
	client := d.hub.Subscribe(cache.Cluster, fanout.NewSubscriber(func() {}))
	client.Delta([]string{"a"}, nil, d.now)
	d.settle()
	r := Decode(&discovery.DeltaDiscoveryResponse{TypeUrl: string(cache.Cluster), Nonce: "n", RemovedResources: []string{"a"}}, cache.Fingerprint{})
	d.core.Receive(d.id, r, d.now)
	for _, e := range d.core.Effects() {
		e.Apply(d.hub)
	}
	client.Delta([]string{"b"}, nil, d.now)
	if early := d.settle(); len(early) > 0 {
		t.Errorf("%v is written before the ACK", early)
	}
	d.core.Applied(d.id, r, d.now)
	if req, _ := d.core.Next(d.id, d.now).(*discovery.DeltaDiscoveryRequest); req.GetResponseNonce() != "n" {
		t.Errorf("%v is written, and no ACK", req)
	}
	if req, _ := d.core.Next(d.id, d.now).(*discovery.DeltaDiscoveryRequest); len(req.GetResourceNamesSubscribe()) != 1 {
		t.Errorf("%v is written, and no subscription of b", req)
	}
}
