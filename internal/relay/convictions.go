package relay

import (
	"sync"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/upstream"
)

// convictions is what one group tells an Observer. It takes back, at the group's end, what the
// group has told of types in quarantine: nobody else would.
type convictions struct {
	upstream.Observer

	mu    sync.Mutex
	types map[cache.TypeURL]bool
}

// convictionsTo returns that of a new group; the Observer may be nil.
func convictionsTo(o upstream.Observer) *convictions {
	return &convictions{Observer: o, types: make(map[cache.TypeURL]bool)}
}

// UpstreamQuarantine implements upstream.Observer.
func (c *convictions) UpstreamQuarantine(t cache.TypeURL, convicted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if convicted {
		c.types[t] = true
	} else {
		delete(c.types, t)
	}
	c.Observer.UpstreamQuarantine(t, convicted)
}

func (c *convictions) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.types {
		c.Observer.UpstreamQuarantine(t, false)
	}
	clear(c.types)
}
