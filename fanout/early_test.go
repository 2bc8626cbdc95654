package fanout

import (
	"testing"

	"github.com/xds-relay/xds-relay/cache"
)

// TestSendEarly: a set that was sent early is for clients that came with nothing; for whatever else it is as if there were
// none, but that it is saved, until it is complete or the last resort has filled it (RECON-16).
func TestSendEarly(t *testing.T) {
	for how, end := range map[string]func(h *Hub){
		"complete": func(h *Hub) { h.Apply(all, &cache.Update{Synced: true}) },
		"filled":   func(h *Hub) { h.Fill(all, &cache.Update{Set: set("b").Set, Synced: true, At: epoch}) },
	} {
		t.Run(how, func(t *testing.T) {
			h := newHub()
			comes := func(returns bool) *Subscription {
				s := h.Subscribe(typ, NewSubscriber(func() {}))
				if returns {
					s.Returns()
				}
				s.Delta([]string{Wildcard}, nil, epoch)
				return s
			}
			newcomer, returning := comes(false), comes(true)
			changes(h)
			h.Apply(all, set("a"))
			served := func(s *Subscription) (served bool) {
				s.Read(func(v View) { _, served = v.Wildcard() })
				return served
			}
			if served(newcomer) {
				t.Error("a set is sent of which nothing is known")
			}
			h.On(all).SendEarly()
			if !served(newcomer) || served(returning) {
				t.Errorf("sent early to who came with nothing: %v, to who came with versions: %v", served(newcomer), served(returning))
			}
			if h.Of(typ).Synced() || !h.Unresolved() {
				t.Error("a set that was sent early counts as complete")
			}
			if n := len(h.Disk().Save(func(cache.TypeURL) bool { return false })); n != 1 {
				t.Errorf("%d sets are saved, want what has been sent", n)
			}
			if end(h); !served(returning) {
				t.Error("who came with versions is not served in the end")
			}
		})
	}
}
