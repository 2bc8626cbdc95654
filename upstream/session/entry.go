package session

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Entries are the control planes that can serve the group, in order of preference.
// One is in use at a time (UP-15). When it has been failing for a while, the relay switches to
// the next one (failover.go). Entries before the one in use are probed (probe.go). A switch
// removes nothing: the new entry is asked without versions (RECON-8), and what it has not
// announced once its set is complete is swept (RECON-12).

// Entry is one control plane of the list.
type Entry struct {
	// Name identifies the entry, in logs and in the Origin of resources.
	Name string
	Mode Mode
	// ForwardHeaders means that Config.Headers are sent to the entry (NODE-13).
	ForwardHeaders bool
	// LastResort means that the entry only fills gaps while no other answers (UP-26). It may be true of the
	// last one.
	LastResort bool
}

// Mode is the variant in which a control plane is asked (UP-16).
type Mode uint8

const (
	ModeAuto  Mode = iota // Delta, or SotW while the server has no Delta
	ModeDelta             // Delta ADS
	ModeSotW              // SotW ADS
)

// deltaRetry is how long the relay speaks SotW to a server without Delta before it tries Delta again.
const deltaRetry = 10 * time.Minute

// entry is the state of an Entry. It outlives streams.
type entry struct {
	Entry
	// attempts decide when the next one is due (ERR-1), which is notBefore.
	attempts  attempts
	notBefore time.Time
	// noDelta means that the server answered UNIMPLEMENTED to Delta, at triedDelta.
	noDelta    bool
	triedDelta time.Time
	// ignoresVersions means that the server announces resources although it was shown their
	// versions, and does not say which are gone (RECON-13).
	ignoresVersions bool
	// bare means that the present streams show no versions, to find out what is gone.
	bare bool
	// unchecked means that health checks are not sent to the server (protocol.md §0).
	unchecked bool
	// heard is when the last response came, failed when a stream last failed, and failure
	// why. They are for State only.
	heard, failed time.Time
	failure       string
	// fails means that the entry was left because it failed, or that a stream of it did, and that it has not
	// answered since.
	fails bool
	// relay means that the server identified itself as a relay on the open stream (MISS-5).
	relay bool
	// lowered is the limit of a request since a longer one was refused, or zero (UP-17).
	lowered int

	// returned is when the relay last switched back to the entry, if it is still in use.
	// steady is how long it must have answered before the next such switch (UP-14).
	returned time.Time
	steady   time.Duration

	// probe is the stream to the entry while another one is in use, and back when the probe
	// had its first resource.
	probe slot
	back  time.Time
	turn  int // counts probes, which ask for the lanes in turn
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

// chunks is how the nonces of the entry in use show that more responses follow (RECON-16).
func (c *Core) chunks() Chunks {
	switch {
	case c.config.Chunks != ChunksAuto:
		return c.config.Chunks
	case c.entry().relay:
		return ChunksRelay
	}
	return ChunksNone
}

// explicitMissing reports whether the entry in use answers every name (MISS-5).
func (c *Core) explicitMissing() bool { return c.config.ExplicitMissing.or(c.entry().relay) }

// missingAfter is how long the entry in use may leave a name unanswered.
func (c *Core) missingAfter() time.Duration {
	if c.explicitMissing() {
		return c.config.MissingExplicit
	}
	return c.config.Missing
}

// ranking are the control planes in order of preference, and which of them is in use.
type ranking struct {
	entries []entry
	current int
	heard   bool // the entry in use has answered since it was chosen
	// quietUntil is until when clients are not told of a failure: a new entry has replaced one
	// that stopped answering, and must have the time to answer (UP-14).
	quietUntil time.Time
	// afterSwitch means that the entry was put to use although nothing was missing. The Hub
	// doubts the removals that it sends (UP-14, H-22).
	afterSwitch bool
}

func newRanking(list []Entry) (r ranking) {
	for i, e := range list {
		r.entries = append(r.entries, entry{Entry: e, probe: slot{role: Probe, entry: i}})
	}
	return r
}

// InUse is the index of the entry in use.
func (r *ranking) InUse() int { return r.current }

// Heard reports whether that entry has answered since it was put to use.
func (r *ranking) Heard() bool { return r.heard }

func (r *ranking) entry() *entry { return &r.entries[r.current] }

// entryOf is the entry to which a slot's stream is.
func (r *ranking) entryOf(s *slot) *entry { return &r.entries[s.entry] }

// restate returns how a stream restates the interest of a lane. It shows the versions that came
// from the same entry in the same variant, or as Config.Versions says (RECON-8).
func (c *Core) restate(s *slot, origin cache.Origin) restate {
	e, stream := c.entryOf(s), uint64(s.id)
	return func(lane fanout.Lane, fresh bool) (names []string, here []cache.Held) {
		shows := fresh && c.showsVersions(e, lane, origin.SotW)
		return c.hub.On(lane).Resume(origin, stream, func(from cache.Origin) bool {
			if !shows {
				return false
			}
			return from == origin || c.config.Versions == VersionsAlways && from.SotW == origin.SotW
		})
	}
}

// showsVersions reports whether an entry is shown any versions of a lane.
func (c *Core) showsVersions(e *entry, lane fanout.Lane, sotw bool) bool {
	switch {
	case e.ignoresVersions, e.bare, c.bare[lane]:
		return false
	case sotw && c.accepted[lane].version == "":
		return false
	}
	return c.config.Versions != VersionsNever
}

// Cause is why the relay switches to another entry.
type Cause uint8

const (
	Waits     Cause = iota // clients wait, and the entry in use does not answer
	Stale                  // nothing is missing, but the entry in use has not answered for long
	Preferred              // a preferred entry answers again
)

// switchTo puts another entry in use.
func (c *Core) switchTo(i int, why Cause, now time.Time) {
	if c.heard {
		c.quietUntil = now.Add(c.config.quiet())
	}
	c.afterSwitch = why != Waits
	c.quit(now)
	from := c.current
	c.current, c.heard = i, false
	e := c.entry()
	for j := range c.entries[i:] {
		c.dropProbe(&c.entries[i+j])
	}
	c.main.attempts = &e.attempts
	c.main.openAt = latest(now, e.notBefore)
	c.emit(Switch{From: from, To: i, Why: why})
}

func (c *Core) quit(now time.Time) {
	c.entry().left(&c.config, now)
	c.entry().bare = false
	c.shut(&c.main)
	c.shutAux()
	c.dropTrial(now)
	for lane, s := range c.solo {
		c.shut(s)
		delete(c.solo, lane)
	}
	for t := range c.suspects.quarantined {
		c.emit(Resolution{Type: t})
	}
	c.claims.forget()                                 // as is a claim,
	c.suspects, c.trials = newSuspects(), newTrials() // the next control plane may accept what this one refuses
	clear(c.silent)                                   // and answer where this one is silent
}
