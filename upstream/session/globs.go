package session

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// globs has those of a lane whose members may not all be here yet. Like a wildcard's set they come in one response
// or several, and Delta does not mark the last one (RECON-16).
type globs struct {
	waiting map[string]time.Time // when the first answer was applied; zero: there is none yet
	ends    cache.Deadlines[string]
}

// asks notes globs among names that were asked for.
func (g *globs) asks(names []string) {
	for _, name := range names {
		if !cache.IsGlob(name) {
			continue
		}
		if g.waiting == nil {
			g.waiting = make(map[string]time.Time)
		}
		g.waiting[name] = time.Time{}
		g.ends.Set(name, time.Time{})
	}
}

// forget drops what waits for no answer any more.
func (g *globs) forget(names []string) {
	if len(g.waiting) == 0 {
		return
	}
	for _, name := range names {
		delete(g.waiting, name)
		g.ends.Set(name, time.Time{})
	}
}

// answered returns the waiting globs that a response answers with anything but a removal.
func (g *globs) answered(u *cache.Update) (some []string) {
	answered(u, func(name string) {
		if _, waits := g.waiting[name]; waits {
			some = append(some, name)
		}
	})
	slices.Sort(some)
	return slices.Compact(some)
}

// begun returns the waiting globs that have been answered.
func (g *globs) begun() (some []string) {
	for name, first := range g.waiting {
		if !first.IsZero() {
			some = append(some, name)
		}
	}
	return some
}

// applied starts the wait for more responses, or prolongs it if this one added a name. Where the server marks the last
// response, no time completes a glob.
func (g *globs) applied(d *Response, chunks Chunks, c *Config, now time.Time) {
	for _, name := range d.globs {
		first := g.waiting[name]
		if first.IsZero() {
			first = now
		} else if !d.adds {
			continue
		}
		if g.waiting[name] = first; chunks != ChunksNone {
			continue
		}
		at := now.Add(c.Settle)
		if limit := first.Add(c.SettleCap); at.After(limit) {
			at = limit
		}
		g.ends.Set(name, at)
	}
}

// tick returns the globs whose wait is over.
func (g *globs) tick(now time.Time) (complete []string) {
	if len(g.waiting) == 0 {
		return nil
	}
	complete = g.ends.Due(now)
	slices.Sort(complete)
	g.forget(complete)
	return complete
}

// deadline is when to tick, or zero.
func (g *globs) deadline() time.Time {
	_, at := g.ends.First()
	return at
}

// completes finds out which globs a response answers, and whether they, and those answered before, are complete with it.
func (c *Core) completes(l *laneState, d *Response) {
	if len(l.globs.waiting) == 0 {
		return
	}
	d.globs, d.adds = l.globs.answered(&d.Update), c.hub.On(l.lane).Lacks(d.Update.Set)
	if d.isLast(c.chunks(), &c.config) {
		all := append(d.globs, l.globs.begun()...)
		slices.Sort(all)
		d.Update.Overdue, d.globs = slices.Compact(all), nil
		l.globs.forget(d.Update.Overdue)
	}
}
