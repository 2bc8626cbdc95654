package session

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// What clients will ask for next is asked for before they do (UP-28), of the types that some client of the relay has asked
// the entry in use for, and that it has answered.

// Prefetchable returns the types that can be asked for early: those whose names other resources mention, but no secrets,
// and Listeners.
func Prefetchable() []cache.TypeURL {
	return []cache.TypeURL{cache.Cluster, cache.Endpoint, cache.Listener, cache.Route, cache.Extension}
}

// prefetched are the types that go up early now.
func (c *Core) prefetched() []cache.TypeURL {
	return slices.DeleteFunc(slices.Clone(c.config.Prefetch), func(t cache.TypeURL) bool {
		return !c.Allowed(t) || !c.config.Answers.has(c.entry().Name, t)
	})
}

// expectListeners has the Listeners go up with the Clusters: who asks for all Clusters asks for all Listeners next.
func (c *Core) expectListeners(changes map[fanout.Lane]fanout.Interest, now time.Time) {
	if len(changes[fanout.Lane{Type: cache.Cluster, Wildcard: true}].Want) > 0 && slices.Contains(c.prefetched(), cache.Listener) {
		c.hub.Prefetch(cache.Listener, []string{fanout.Wildcard}, now)
	}
}
