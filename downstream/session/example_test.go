package session_test

import (
	"fmt"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// shared serves all clients from one Hub.
type shared struct{ hub *fanout.Hub }

func (shared) Key(session.Peer, *core.Node) (string, *session.End) { return "", nil }

func (g shared) Join(session.Peer, *core.Node, cache.TypeURL) (session.Membership, *session.End) {
	return session.Membership{Hub: g.hub, Leave: func() {}}, nil
}

// One Delta client from its first request to a resource that goes. Requests and the time go into a
// Session, responses come out; what exists comes from upstream, by way of the Hub.
func Example() {
	hub := fanout.NewHub(fanout.Config{})
	lane := fanout.Lane{Type: cache.Endpoint}
	upstream := func(now time.Time, u *cache.Update) {
		u.At = now
		hub.Apply(lane, u)
	}
	endpoints := func(name, content string) cache.Received {
		return cache.Received{Resource: cache.NewResource(cache.Endpoint, &discovery.Resource{
			Name: name, Resource: &anypb.Any{TypeUrl: string(cache.Endpoint), Value: []byte(content)},
		}, cache.Fingerprint{})}
	}

	config := &session.Config{AckTimeout: 10 * time.Second, MaxName: 1 << 10, MaxNames: 1 << 16}
	woken := false
	s := session.New(config, session.Stream{Delta: true}, session.Peer{}, shared{hub}, session.NewClusterDeliveries(), func() { woken = true })
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	defer s.Close(now)
	request := func(req *discovery.DeltaDiscoveryRequest) {
		req.TypeUrl = string(cache.Endpoint)
		if _, end := s.DeltaRequest(req, now); end != nil {
			fmt.Println(end)
		}
	}
	nonce := ""
	next := func(when string) {
		r, end := s.Next(now)
		switch {
		case end != nil:
			fmt.Printf("%s: the stream ends: %v\n", when, end)
			return
		case r == nil:
			fmt.Printf("%s: nothing\n", when)
			return
		}
		nonce = r.Nonce
		for _, res := range r.Resources {
			fmt.Printf("%s: %s\n", when, res.Name)
		}
		for _, name := range r.Removed {
			fmt.Printf("%s: %s is gone\n", when, name)
		}
	}

	request(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"cart", "search"}})
	next("asked, and upstream has not answered")
	hub.On(lane).Asked([]string{"cart", "search"}) // the request upstream is written
	upstream(now, &cache.Update{Set: []cache.Received{endpoints("cart", "10.0.0.1")}, Removed: []string{"search"}})
	fmt.Println("woken:", woken)
	next("upstream has answered")
	upstream(now, &cache.Update{Set: []cache.Received{endpoints("cart", "10.0.0.2")}})
	next("a change before the ACK")
	request(&discovery.DeltaDiscoveryRequest{ResponseNonce: nonce})
	next("the ACK is in")
	request(&discovery.DeltaDiscoveryRequest{ResponseNonce: nonce})
	upstream(now, &cache.Update{Set: []cache.Received{endpoints("cart", "10.0.0.2")}})
	next("the same again")
	upstream(now, &cache.Update{Removed: []string{"cart"}})
	next("removed upstream")

	// Output:
	// asked, and upstream has not answered: nothing
	// woken: true
	// upstream has answered: cart
	// upstream has answered: search is gone
	// a change before the ACK: nothing
	// the ACK is in: cart
	// the same again: nothing
	// removed upstream: cart is gone
}
