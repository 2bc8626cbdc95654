package session

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/header"
)

// StreamID numbers the attempts to open a stream.
type StreamID uint64

// Role is what a stream is for.
type Role string

const (
	Main      Role = "main"  // all other lanes
	Auxiliary Role = "aux"   // the second lane of types wanted both ways (WILD-13)
	Solo      Role = "solo"  // one quarantined type (H-39)
	Trial     Role = "trial" // one type that the entry has never answered (UP-21)
	Probe     Role = "probe" // whether a preferred entry is back (UP-14)
)

// Experiment reports whether streams of the role only find something out: how they end says nothing
// about whether the group is served.
func (r Role) Experiment() bool { return r == Probe || r == Trial }

// decides reports whether a stream of the role decides in which variant its entry is asked (UP-16).
func (r Role) decides() bool { return r == Main || r == Probe }

// Open is a stream that is to be opened now.
type Open struct {
	ID   StreamID
	Role Role
	// Entry is the index of the control plane, SotW the variant.
	Entry int
	SotW  bool
	// Via has the relays through which clients come, this one last (NODE-11).
	Via []string
	// Headers are those of the clients, for an entry with ForwardHeaders (NODE-13).
	Headers []header.Header
}

// slot is one stream and, between streams, the schedule of the next.
type slot struct {
	role Role
	lane fanout.Lane // of a solo slot, or on trial; zero: there is no trial
	// Of the current attempt: the index of its entry, and the variant.
	entry int
	sotw  bool

	// The schedule outlives the stream, and so does the outage.
	attempts *attempts // of a main slot: those of the entry; a trial has none
	openAt   time.Time // when to open a stream; zero: none is wanted, or there is one
	attempt  time.Time // when the last attempt began
	refused  bool      // the server ended the last stream with a status

	outage outage

	// The stream. These fields end with it.
	id       StreamID // zero: none
	opened   time.Time
	hops     int           // the length of the via header that it was opened with
	claims   []*claimState // that it carries
	alive    liveness
	stream   *streamState // nil: not open yet
	answered bool         // a response has come; on a probe, a resource
}

// open reports whether there is a stream. There is none on no slot.
func (s *slot) open() bool { return s != nil && s.stream != nil }

// opening reports whether an attempt to open a stream is under way.
func (s *slot) opening() bool { return s.id != 0 && s.stream == nil }

// engaged reports whether there is a stream, or an attempt, or one that is scheduled.
func (s *slot) engaged() bool { return s.id != 0 || !s.openAt.IsZero() }

// carries reports whether an open stream carries a type now.
func (s *slot) carries(t cache.TypeURL) bool { return s.open() && s.stream.lanes[t] != nil }

// state is that of a lane on the stream, or nil if the stream does not carry it.
func (s *slot) state(lane fanout.Lane) *laneState {
	if !s.carries(lane.Type) || s.stream.lanes[lane.Type].lane != lane {
		return nil
	}
	return s.stream.lanes[lane.Type]
}

func (c *Core) attempt(s *slot, now time.Time) Open {
	c.lastID++
	s.id, s.attempt, s.openAt, s.answered = c.lastID, now, time.Time{}, false
	if s.role != Probe {
		s.entry = c.current
	}
	if s.role.decides() {
		s.sotw = c.entryOf(s).variant(now)
	} else {
		s.sotw = c.main.sotw
	}
	s.hops, s.claims = len(c.claims.via()), c.claims.carried()
	open := Open{ID: s.id, Role: s.role, Entry: s.entry, SotW: s.sotw, Via: append(slices.Clone(c.claims.via()), c.config.Hop)}
	if c.entryOf(s).ForwardHeaders {
		open.Headers = c.config.Headers
	}
	return open
}

// all are the slots of the entry in use, and the probes of those before it.
func (c *Core) all() []*slot {
	all := c.slots()
	for i := range c.entries[:c.current] {
		all = append(all, &c.entries[i].probe)
	}
	return all
}

// streams are those of the entry in use. Each solo stream carries one quarantined lane, and the trial stream one that
// is tried.
type streams struct {
	main, aux, trial slot
	solo             map[fanout.Lane]*slot
	lastID           StreamID
	closing          []StreamID
}

func newStreams() streams {
	return streams{
		main:  slot{role: Main},
		aux:   slot{role: Auxiliary, attempts: new(attempts)},
		trial: slot{role: Trial},
		solo:  make(map[fanout.Lane]*slot),
	}
}

// slots are those of the entry in use.
func (c *streams) slots() []*slot {
	return slices.AppendSeq([]*slot{&c.main, &c.aux, &c.trial}, maps.Values(c.solo))
}

// openSlots are the slots whose streams are open when it is their turn.
func (c *streams) openSlots() iter.Seq[*slot] {
	return func(yield func(*slot) bool) {
		for _, s := range c.slots() {
			if s.open() && !yield(s) {
				return
			}
		}
	}
}

func (c *Core) slot(id StreamID) *slot {
	for _, s := range c.all() {
		if id != 0 && s.id == id {
			return s
		}
	}
	return nil
}

// Uses reports whether a stream is in use, or being opened. Messages of others are dropped.
func (c *Core) Uses(id StreamID) bool { return c.slot(id) != nil }

// stop forgets a stream that has ended.
func (c *Core) stop(s *slot) {
	if s.open() && s.role != Probe {
		for _, l := range s.stream.lanes {
			c.loosen(l.lane)
		}
		if s.role == Main {
			for t := range c.trials.waiting {
				c.unpark(t)
			}
		}
		c.emit(Over{s.id})
	}
	s.id, s.stream, s.alive, s.answered, s.outage.suspended = 0, nil, liveness{}, false, false
}

func (c *Core) shut(s *slot) {
	if s.id != 0 {
		c.closing = append(c.closing, s.id)
		c.stop(s)
	}
}

// newStream is the state of a stream that has just been opened.
func (c *Core) newStream(s *slot, r restate) *streamState {
	e := c.entryOf(s)
	origin := cache.Origin{Entry: e.Name, SotW: s.sotw}
	if r == nil {
		r = c.restate(s, origin)
	}
	stream := &streamState{
		config: &c.config, hub: c.hub, alive: &s.alive, origin: origin, restate: r, limit: e.maxRequest(&c.config),
		lanes: make(map[cache.TypeURL]*laneState),
		used:  make(map[cache.TypeURL]*typeState),

		unused: make(map[*laneState]bool),
		awake:  newAwake(),
	}
	switch {
	case !s.sotw:
		stream.writer = deltaWriter{stream}
	case s.role == Probe: // what it accepts is forgotten with it
		stream.writer = sotwWriter{stream, make(map[fanout.Lane]acceptance)}
	default:
		stream.writer, stream.nameLists = sotwWriter{stream, c.accepted}, c.nameLists
	}
	return stream
}
