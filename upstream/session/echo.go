package session

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Whether a server reads the versions that it is shown (RECON-13). One that does not
// announces everything again, and never says what has gone meanwhile, so that its silence
// about the rest would be taken for "unchanged". Then the stream is opened once more
// without versions, and what is not announced is swept.

// echo compares what a lane's server was shown with what it says.
type echo struct {
	// left are versions that were shown, of resources of which nothing was said since;
	// nil: there is nothing to compare.
	left map[string]string
	// version: the first answer repeats one of them at its version; content: with the
	// content that is here, under another version.
	version, content bool
}

// hears takes in a response, before it is applied. same are the names of resources in it
// that are here with that content.
func (e *echo) hears(u *cache.Update, same func([]cache.Received) map[string]bool) {
	if e.left == nil {
		return
	}
	if u.First {
		here := same(u.Set)
		for _, r := range u.Set {
			version, shown := e.left[r.Name]
			switch {
			case !shown:
			case version == r.Upstream && (version != "" || here[r.Name]): // an empty one is no sign
				e.version = true
			case here[r.Name]:
				e.content = true
			}
		}
	}
	for _, r := range u.Set {
		delete(e.left, r.Name)
	}
	for _, name := range u.Removed {
		delete(e.left, name)
	}
	for _, err := range u.Errors {
		delete(e.left, err.Name)
	}
	for _, name := range u.Kept {
		delete(e.left, name)
	}
	if len(e.left) == 0 || !e.version && !e.content {
		e.left = nil
	}
}

// judge reports, once the server has had the time to say everything, whether it ignores
// what it was shown.
func (e *echo) judge() (ignores bool) {
	ignores = len(e.left) > 0 && (e.version || e.content)
	e.left = nil
	return ignores
}

// judgeAt is when silence about the rest of a lane's names means something, or zero. That
// of a wildcard does when its set is complete.
func (c *Core) judgeAt(l *laneState) (at time.Time) {
	if l.echo.left != nil && !l.lane.Wildcard && l.answered {
		at = l.askedAt.Add(c.missingAfter())
	}
	return at
}

// reopen begins the streams of an entry once more without versions. If the server has
// repeated what it was shown, or what it does not announce then was here, it is not shown
// versions any more.
func (c *Core) reopen(s *slot, repeats bool, now time.Time) {
	e := &c.entries[s.entry]
	e.mapless = true
	if repeats {
		e.ignoresVersions = true
	}
	c.effects = append(c.effects, Effect{Notice: "the control plane ignores the versions it is shown; asking it without them", Entry: e.Name})
	c.replace(s, now)
}

// sweeps notes that what is about to be swept on a lane was here.
func (c *Core) sweeps(s *slot, lane fanout.Lane, announced []cache.Received) {
	if e := &c.entries[s.entry]; e.mapless && !e.ignoresVersions && c.hub.On(lane).Sweeps(announced) {
		e.ignoresVersions = true
	}
}

// sweepsNames notes that something that names lead to is about to be swept, and was here.
func (c *Core) sweepsNames(s *slot) {
	e := &c.entries[s.entry]
	e.ignoresVersions = e.ignoresVersions || e.mapless
}
