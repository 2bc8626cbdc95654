package session

import (
	"slices"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TestGlobsAreForgotten: a glob waits for an end of its answer until that has come, its timer is over, or it is given up.
func TestGlobsAreForgotten(t *testing.T) {
	const a, b = "xdstp://cp/a/*", "xdstp://cp/b/*"
	var g globs
	c := &Config{Settle: time.Second, SettleCap: 3 * time.Second}
	now := time.Unix(1000, 0)
	g.asks([]string{"name", a, b})
	u := &cache.Update{Kept: []string{"name", b, b, "xdstp://cp/c/*"}}
	if some := g.answered(u); !slices.Equal(some, []string{b}) {
		t.Fatalf("it answers %q", some)
	}
	d := &Response{globs: []string{b}, adds: true}
	for i := range 5 { // at last beyond the cap
		g.applied(d, ChunksNone, c, now.Add(time.Duration(i)*900*time.Millisecond))
	}
	if at := g.deadline(); !at.Equal(now.Add(c.SettleCap)) {
		t.Errorf("the wait ends %v after the first response, want %v", at.Sub(now), c.SettleCap)
	}
	if some := g.tick(now.Add(c.SettleCap - 1)); some != nil {
		t.Errorf("too early: %q", some)
	}
	if some := g.tick(now.Add(c.SettleCap)); !slices.Equal(some, []string{b}) {
		t.Errorf("%q are complete", some)
	}
	g.applied(&Response{globs: []string{a}}, ChunksNone, c, now)
	g.forget([]string{a})
	if len(g.waiting) > 0 || !g.deadline().IsZero() {
		t.Errorf("%v wait until %v", g.waiting, g.deadline())
	}
}
