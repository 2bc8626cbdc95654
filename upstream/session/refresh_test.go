package session

import (
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TestRefreshesBecomeRare: each new stream for the sake of a name that was delivered, and finds nothing, makes
// the next one wait for twice as long, up to five minutes; what is found of other names, or of another
// type, changes nothing about that (UP-19).
func TestRefreshesBecomeRare(t *testing.T) {
	now := time.Unix(1000, 0)
	c, _, _ := twoEntries(t, now)
	again := func(want time.Duration) {
		t.Helper()
		c.refresh(&c.main, cache.Cluster, []string{"a"}, now)
		if wait := c.refreshes.notBefore.Sub(now); wait != want {
			t.Errorf("the next one comes after %v, want %v", wait, want)
		}
		now = now.Add(want)
	}
	found := func(typ cache.TypeURL, name string) {
		c.found(typ, &cache.Update{Set: []cache.Received{{Resource: &cache.Resource{Name: name}}}})
	}
	again(10 * time.Second)
	again(20 * time.Second)
	found(cache.Cluster, "b")
	again(40 * time.Second)
	found(cache.Endpoint, "a")
	again(80 * time.Second)
	again(160 * time.Second)
	again(5 * time.Minute)
	again(5 * time.Minute)
	found(cache.Cluster, "a")
	again(10 * time.Second)
}
