package twin

import (
	"maps"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/test/xdstest/play"
)

// noteSent keeps under which version a client was sent its resources: SotW does not say.
func (c *pureClient) noteSent(resp *session.Response) {
	if c.sent == nil {
		c.sent = map[cache.TypeURL]map[string]string{}
	}
	if c.sent[resp.Type] == nil {
		c.sent[resp.Type] = map[string]string{}
	}
	for _, r := range resp.Resources {
		c.sent[resp.Type][r.Name] = r.Version
	}
}

// recorded compares what a client holds, by its messages, with the record that its Session keeps of
// that, and checks the invariants of the Session.
//
// Each look is at all names. So it looks only once in 50 times at clients with thousands of them.
func (r *pureRelay) recorded(c *pureClient) {
	if cl := r.game.checker.clients[c.id]; cl != nil && cl.size() > 1000 {
		if r.looks++; r.looks%50 != 0 {
			return
		}
	}
	for _, broken := range c.session.Check() {
		r.game.checker.fail("check", "c%d: %s", c.id, broken)
	}
	cl := r.game.checker.clients[c.id]
	if cl == nil || !cl.open || r.game.failed() {
		return
	}
	for _, k := range kinds {
		t := cl.topics[k.name]
		if t == nil || t.interest.fresh {
			continue
		}
		url := cache.TypeURL(k.url)
		said := c.session.Holdings(url, slices.Collect(maps.Keys(t.holds))...)
		if said == nil {
			continue // parts of a response are still to be sent
		}
		for name := range t.holds {
			delete(t.unclear, name)
		}
		for _, name := range slices.Sorted(maps.Keys(said)) {
			h, holds := t.holds[name]
			if t.unclear[name] {
				continue
			}
			if c.sotw {
				h.version = c.sent[url][name]
			}
			if said[name].Not != "" && t.owed[name] {
				continue // it went and came back as it was, or is owed for another reason
			}
			if other := play.Contradicts(said[name], h.version, holds); other != "" {
				r.game.checker.fail("holdings", "c%d %s %s: the client holds %q, version %q (%v), and the record has %s", c.id, k.name, name, h.label, h.version, holds, other)
			}
		}
	}
}

// size is how many names and resources a client has to do with.
func (cl *clientState) size() (n int) {
	for _, t := range cl.topics {
		n += len(t.holds) + len(t.interest.Names)
	}
	return n
}
