package fanout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// TestDigest: the digest that is kept up to date is that of what the names lead to, whatever
// comes and goes meanwhile (RECON-14).
func TestDigest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	name := func() string { return fmt.Sprint(random.IntN(12)) }
	h := newHub()
	var clients []*Subscription
	for range 4 {
		clients = append(clients, h.Subscribe(typ, NewSubscriber(func() {})))
	}
	known := 0
	for step := range 5000 {
		c := clients[random.IntN(len(clients))]
		switch random.IntN(12) {
		case 0:
			c.Replace(Names{Some: true, Added: []string{name()}}, epoch)
			c.Replace(Names{Some: true, Gone: []string{name()}}, epoch)
		case 1:
			c.Replace(Names{Some: true, Added: []string{name()}, Gone: []string{name()}}, epoch)
		case 2:
			h.Apply(byName, &cache.Update{Removed: []string{name()}})
		case 3:
			h.Apply(byName, &cache.Update{Full: true, Set: set(name(), name()).Set})
		case 4:
			changes(h)
		case 5:
			h.Expire(epoch.Add(time.Hour))
		case 6:
			c.Close(epoch)
			i := slices.Index(clients, c)
			clients[i] = h.Subscribe(typ, NewSubscriber(func() {}))
		default:
			r := &discovery.Resource{Name: name(), Resource: &anypb.Any{TypeUrl: string(typ), Value: fmt.Append(nil, random.IntN(3))}}
			if random.IntN(20) == 0 {
				r.Aliases = []string{name()}
			}
			h.Apply(byName, &cache.Update{Set: []cache.Received{{Resource: cache.NewResource(typ, r, cache.Fingerprint{})}}})
		}
		for _, s := range clients {
			s.Read(func(v View) {
				got, ok := v.Digest()
				if !ok || len(v.Names()) == 0 {
					return
				}
				known++
				var want cache.Digest
				for _, id := range v.Names() {
					for _, r := range v.Answer(id).Resources() {
						want.Add(r)
					}
				}
				if got != want.String() {
					t.Fatalf("step %d: %s, want %s", step, got, want.String())
				}
			})
		}
	}
	if known < 1000 {
		t.Errorf("a digest was known %d times only", known)
	}
}
