package session

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Entries are the control planes that can serve the group, in order of preference.
// One is in use at a time (UP-15). When it has been failing for a while the next is put
// to use (failover.go); meanwhile those before it are probed (probe.go). At a switch
// nothing is removed: the new one is asked without versions (RECON-8), and what it has
// not announced when it is done is swept (RECON-12).

// Entry is one control plane of the list.
type Entry struct {
	// Name tells it from the others, in logs and in what is known of versions.
	Name string
	Mode Mode
	// ForwardHeaders: it is sent Config.Headers (NODE-13).
	ForwardHeaders bool
}

// Mode is the variant in which a control plane is asked (UP-16).
type Mode uint8

const (
	ModeAuto  Mode = iota // Delta, or SotW while the server has no Delta
	ModeDelta             // Delta ADS
	ModeSotW              // SotW ADS
)

// deltaRetry is how long a server that had no Delta is not asked for it again.
const deltaRetry = 10 * time.Minute

// entry is what is known of an Entry. It outlives streams.
type entry struct {
	Entry
	// backoff is its schedule of attempts (ERR-1), notBefore when the next is due.
	backoff   Backoff
	notBefore time.Time
	// noDelta: it said UNIMPLEMENTED when it was asked for Delta, at triedDelta.
	noDelta    bool
	triedDelta time.Time
	// ignoresVersions: it announces what it was shown, and does not say what is gone
	// (RECON-13).
	ignoresVersions bool
	// mapless: its present streams are shown none, to find out what is gone.
	mapless bool
	// unchecked: it is not asked whether it is there (protocol.md §0).
	unchecked bool
	// heard is when its last response came, and failed when a stream to it failed last, for
	// people; failure is why.
	heard, failed time.Time
	failure       string
	// relay: it calls itself one, whose habits are known, on the stream that is open (MISS-5).
	relay bool
	// lowered is the limit of a request since a longer one was refused, or zero (UP-17).
	lowered int

	// returned is when it was returned to, if it is in use since, and steady how long
	// it must have answered before the next return (UP-14).
	returned time.Time
	steady   time.Duration

	// probe is its stream while another entry is in use, and back is since when that
	// has had a resource.
	probe slot
	back  time.Time
	turn  int // of the lanes that are asked for
}

// variant decides how to open the next main stream or probe (UP-16).
func (e *entry) variant(now time.Time) (sotw bool) {
	switch {
	case e.Mode != ModeAuto:
		return e.Mode == ModeSotW
	case e.noDelta && now.Sub(e.triedDelta) < deltaRetry:
		return true
	}
	e.triedDelta = now
	return false
}

// other takes note that the server said UNIMPLEMENTED, and no response, in one
// variant. It reports whether the other is to be tried at once.
func (e *entry) other(sotw bool) bool {
	e.noDelta = !sotw // and if it has neither, the fault is elsewhere
	return e.noDelta
}

// failing notes how a stream to it ended, or why it could not be opened.
func (e *entry) failing(s *slot, end End, now time.Time) {
	switch {
	case end.NoRoom && s.open():
		return // it makes room for others
	case s.alive.silent:
		e.failed, e.failure = now, stopped // and the connection was given up
	default:
		e.failed, e.failure = now, end.Message
	}
}

// chunks is how the nonces of the one in use tell that more follows (RECON-16).
func (c *Core) chunks() Chunks {
	switch {
	case c.config.Chunks != ChunksAuto:
		return c.config.Chunks
	case c.entry().relay:
		return ChunksRelay
	}
	return ChunksNone
}

// explicitMissing: it answers every name (MISS-5).
func (c *Core) explicitMissing() bool { return c.config.ExplicitMissing.or(c.entry().relay) }

// missingAfter is after how long its silence about a name means something.
func (c *Core) missingAfter() time.Duration {
	if c.explicitMissing() {
		return c.config.MissingExplicit
	}
	return c.config.Missing
}

// InUse is the place in the list of the one in use.
func (c *Core) InUse() int { return c.current }

// EntryName is what an entry is called.
func (c *Core) EntryName(entry int) string { return c.entries[entry].Name }

func (c *Core) entry() *entry { return &c.entries[c.current] }

// restate is the interest of a lane as a stream of an entry restates it, with what
// came from that entry in that variant (RECON-8).
func (c *Core) restate(s *slot, origin cache.Origin) restate {
	e, stream := &c.entries[s.entry], uint64(s.id)
	return func(lane fanout.Lane, fresh bool) (names []string, here []cache.Held) {
		return c.hub.On(lane).Resume(origin, stream, func(from cache.Origin) bool {
			switch {
			case !fresh, c.config.Versions == VersionsNever, e.ignoresVersions, e.mapless, from.SotW != origin.SotW, c.bare[lane]:
				return false
			}
			return from == origin || c.config.Versions == VersionsAlways
		})
	}
}

// Cause is why another entry is put to use.
type Cause uint8

const (
	Waits     Cause = iota // clients wait for something that the one in use does not give
	Stale                  // nothing is missing, but it has not answered for long
	Preferred              // a preferred one answers again
)

// switchTo puts another entry to use.
func (c *Core) switchTo(i int, why Cause, now time.Time) {
	if c.heard {
		c.hushed = now.Add(min(c.config.patience()/2, c.config.UnavailableAfter))
	}
	c.wary = why != Waits
	c.quit(now)
	from := c.current
	c.current, c.heard = i, false
	e := c.entry()
	for j := range c.entries[i:] {
		c.dropProbe(&c.entries[i+j])
	}
	c.main.backoff = &e.backoff
	c.main.openAt = latest(now, e.notBefore)
	c.effects = append(c.effects, Effect{Switch: &Switch{from, i, why}, Entry: e.Name})
}

// quit ends the use of the entry in use.
func (c *Core) quit(now time.Time) {
	c.entry().left(&c.config, now)
	c.shut(&c.main)
	c.shutAux()
	for lane, s := range c.solo {
		c.shut(s)
		delete(c.solo, lane)
	}
	c.acquitAll()   // what one control plane refuses the next may know
	clear(c.silent) // and one may speak where another is silent
}
