package fanout

import (
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// TestWhatLeavesIsForgotten: what has left is remembered for as long as somebody may need it,
// where somebody may, and no body that is not to be kept is.
func TestWhatLeavesIsForgotten(t *testing.T) {
	h := newHub()
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	s.Replace(Names{Some: true, Wildcard: true}, epoch)
	uncached := set("uncached")
	uncached.Set[0].Resource = cache.NewResource(typ, &discovery.Resource{
		Name: "uncached", Resource: &anypb.Any{TypeUrl: string(typ)}, CacheControl: &discovery.Resource_CacheControl{DoNotCache: true},
	}, cache.Fingerprint{})
	limited := set("limited")
	limited.Set[0].TTL, limited.At = time.Minute, epoch
	var told cache.Seq
	leaving := func(told cache.Seq) (names []string) {
		s.Read(func(v View) {
			for _, l := range v.Leaving(told, nil) {
				names = append(names, l.Name)
			}
		})
		return names
	}
	take := func(names ...string) {
		for _, u := range []*cache.Update{set(names...), uncached, limited} {
			h.Apply(all, u)
		}
		s.Read(func(v View) { told = v.Position() })
		h.Apply(all, &cache.Update{At: epoch, Removed: append(names, "uncached", "limited")})
	}

	take("a")
	if got := leaving(told); got != nil {
		t.Errorf("%v is remembered, and nobody needs it", got)
	}
	s.Read(func(v View) { v.Remember(10 * time.Second) })
	take("b", "c")
	if got := leaving(told); len(got) != 2 || got[0] != "b" || got[1] != "c" {
		t.Errorf("%v leaves, want b and c", got)
	}
	if got := leaving(0); got != nil {
		t.Errorf("a newcomer is told of %v", got)
	}
	var news [2]*News
	s.Read(func(v View) {
		for i := range news {
			whole, _ := v.News(0)
			news[i] = v.WithLeaving(whole.Resources, v.Leaving(told, nil))
		}
	})
	if news[0] != news[1] || len(news[0].Resources) != 2 {
		t.Errorf("sets that list the same are not shared, or %d are in it", len(news[0].Resources))
	}
	if at := h.Expiry(); !at.Equal(epoch.Add(10 * time.Second)) {
		t.Errorf("something is to be done at %v", at)
	}
	h.Lapse(h.Expiry())
	if x := h.find(typ); len(x.leaving.all) > 0 || x.board.leaving != nil || !h.Expiry().IsZero() {
		t.Errorf("%v is kept", x.leaving.all)
	}
}
