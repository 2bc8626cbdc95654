package session

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// A new stream in place of the one there is, with the versions at hand, for the sake of
// names that the server has shown on it and says nothing of any more: it believes them
// delivered. On the new one silence counts (UP-19).

const (
	refreshFirst = 10 * time.Second
	refreshMax   = 5 * time.Minute
)

// refreshes is how often that is done. It outlives streams.
type refreshes struct {
	notBefore time.Time
	wait      time.Duration
	// sought are the names of the type typ for which the last one was; nil: it found one.
	typ    cache.TypeURL
	sought map[string]struct{}
}

// refresh opens a new stream in place of one, for names of a type.
func (c *Core) refresh(s *slot, typ cache.TypeURL, names []string, now time.Time) {
	r := &c.refreshes
	if r.sought != nil {
		r.wait = min(2*r.wait, refreshMax) // the last one has found nothing
	} else {
		r.wait = refreshFirst
	}
	r.notBefore = now.Add(r.wait)
	r.typ, r.sought = typ, make(map[string]struct{}, len(names))
	for _, name := range names {
		r.sought[name] = struct{}{}
	}
	c.effects = append(c.effects, Effect{
		Notice: "the control plane says nothing of a name that it has shown on this stream; asking for it on a new one",
		Entry:  c.entries[s.entry].Name,
	})
	c.replace(s, now)
}

// found takes note of what a response brings.
func (c *Core) found(typ cache.TypeURL, u *cache.Update) {
	if typ != c.refreshes.typ {
		return
	}
	for _, r := range u.Set {
		if _, sought := c.refreshes.sought[r.Name]; sought {
			c.refreshes.sought = nil
			return
		}
	}
}

// refreshAt is when a stream is to be replaced, or zero.
func (c *Core) refreshAt(s *slot, now time.Time) (at time.Time) {
	for _, l := range s.stream.lanes {
		if len(l.unanswered.shown) > 0 && c.refreshes.notBefore.After(now) {
			return c.refreshes.notBefore
		}
	}
	return at
}
