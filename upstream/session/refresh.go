package session

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// When the server has sent a name on a stream and does not answer it any more, it believes the
// name delivered. The relay replaces the stream, with the versions in the Hub: silence on the
// new one counts (UP-19).

// The relay does that at most once per refreshFirst. The interval doubles up to refreshMax while
// it finds nothing.
const (
	refreshFirst = 10 * time.Second
	refreshMax   = 5 * time.Minute
)

// refreshes limits how often that is done. It outlives streams.
type refreshes struct {
	notBefore time.Time
	wait      time.Duration
	// sought has the names, of the type typ, for which the last refresh was; nil means that it
	// has found one of them.
	typ    cache.TypeURL
	sought map[string]struct{}
}

// refresh replaces a stream for the sake of names of a type.
func (c *Core) refresh(s *slot, typ cache.TypeURL, names []string, now time.Time) {
	r := &c.refreshes
	if r.sought != nil {
		r.wait = min(2*r.wait, refreshMax) // the last refresh has found nothing
	} else {
		r.wait = refreshFirst
	}
	r.notBefore = now.Add(r.wait)
	r.typ, r.sought = typ, make(map[string]struct{}, len(names))
	for _, name := range names {
		r.sought[name] = struct{}{}
	}
	c.notice(c.entryOf(s), "the control plane does not answer for a name that it has sent on this stream; asking for it on a new stream")
	c.replace(s, now)
}

// found notes whether a response brings a name that is sought.
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
