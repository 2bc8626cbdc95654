package session

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// This file finds out whether a server reads the versions that it is shown (RECON-13). One that
// does not announces everything again, and never removes what has gone meanwhile: the relay
// would take its silence about the rest for "unchanged". So the relay opens the stream again
// without versions, and sweeps what is not announced.

// echo compares the versions that a server was shown with its answers on a lane.
type echo struct {
	// unmentioned has the versions shown of resources that no response has mentioned since; nil
	// means that there is nothing to compare.
	unmentioned map[string]string
	// repeated is when the first response came, if it has repeated resources that were shown. version
	// means that it has repeated one at the version shown, and not only the content that is in the Hub.
	repeated time.Time
	version  bool
}

// hears handles a response before it is applied. same returns the names of those resources
// whose content in the Hub is the same.
func (e *echo) hears(u *cache.Update, same func([]cache.Received) map[string]bool) {
	if e.unmentioned == nil {
		return
	}
	if e.repeated.IsZero() { // the first response
		unchanged := same(u.Set)
		for _, r := range u.Set {
			version, shown := e.unmentioned[r.Name]
			if !shown {
				continue
			}
			same := version == r.Upstream && version != "" // an empty version proves nothing
			if same {
				e.version = true
			}
			if same || unchanged[r.Name] {
				e.repeated = u.At
			}
		}
	}
	answered(u, func(name string) { delete(e.unmentioned, name) })
	for _, name := range u.Removed {
		delete(e.unmentioned, name)
	}
	if len(e.unmentioned) == 0 || e.repeated.IsZero() {
		e.unmentioned = nil
	}
}

// judge reports whether the server ignores the versions that it was shown. It is called once,
// when the server has had the time to announce everything.
func (e *echo) judge() (ignores bool) {
	ignores = len(e.unmentioned) > 0 && !e.repeated.IsZero()
	e.unmentioned = nil
	return ignores
}

// judgeAt is when to judge a lane of names, or zero. A wildcard is judged when its set is complete.
func (c *Core) judgeAt(l *laneState) (at time.Time) {
	if l.echo.unmentioned != nil && !l.lane.Wildcard && !l.echo.repeated.IsZero() {
		at = l.echo.repeated.Add(c.missingAfter())
	}
	return at
}

// reopen opens the streams of an entry again without versions. If the server has repeated a version
// that it was shown, it is not shown any from now on. Otherwise sweeps decides that.
func (c *Core) reopen(s *slot, l *laneState, now time.Time) {
	e := c.entryOf(s)
	e.bare, e.ignoresVersions = true, e.ignoresVersions || l.echo.version
	c.notice(e, "the control plane ignores the versions that it is shown; asking again without them")
	c.replace(s, now)
}

// sweeps notes that an entry ignores versions if, asked without them, it has not announced all
// members of a wildcard's set: they had gone before.
func (c *Core) sweeps(s *slot, lane fanout.Lane, u *cache.Update) {
	if e := c.entryOf(s); e.bare && !e.ignoresVersions && c.hub.On(lane).Sweeps(u) {
		e.ignoresVersions = true
	}
}
