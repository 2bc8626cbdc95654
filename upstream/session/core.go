package session

import (
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Core is the upstream side of one group without any IO. The caller reports that streams
// open, deliver and end, that interest changes, and that time passes. Tick returns the
// streams to open and close, Next the requests to write, and Effects what Core has
// learned. Core is not safe for concurrent use.
type Core struct {
	config Config
	hub    *fanout.Hub
	random func() float64

	ranking // the control planes
	streams // those of the entry in use
	demand  // what is wanted of it

	// These outlive streams, and some of them entries.
	laneMemory
	told
	suspects  *suspects
	trials    *trials
	claims    claims // what streams carry because of some clients
	refreshes refreshes
	nacks     nacks     // for people
	alive     time.Time // when the control plane was last known to be alive; zero: never yet

	// changesAt is when to read the changes of interest; zero means that there are none.
	// That is at once, except for lanes on which changes are gathered (UP-6).
	changesAt time.Time
	lingering
	retirement

	effects []Effect
}

// laneMemory is what of a lane outlives streams, for as long as it is wanted.
type laneMemory struct {
	accepted  map[fanout.Lane]acceptance // the last accepted response of each SotW lane
	nameLists map[fanout.Lane]*nameList  // the lists of SotW lanes
	bare      map[fanout.Lane]bool       // wildcards that are asked for without versions
	faults    map[fanout.Lane]*fault     // lanes on which a response had a fault
}

func newLaneMemory() laneMemory {
	return laneMemory{
		accepted:  make(map[fanout.Lane]acceptance),
		nameLists: make(map[fanout.Lane]*nameList),
		bare:      make(map[fanout.Lane]bool),
		faults:    make(map[fanout.Lane]*fault),
	}
}

// told is what the Hub and people were last told, so that they are told only what is new.
type told struct {
	away        bool                          // the main stream is not alive
	unavailable map[fanout.Lane]bool          // lanes that are
	silent      map[cache.TypeURL]fanout.Lane // types whose silence was reported, with the lane
	excess      map[fanout.Lane]bool          // lanes that would take too much
}

// NewCore returns the upstream side of a group. random yields numbers in [0, 1).
func NewCore(c Config, hub *fanout.Hub, random func() float64) *Core {
	core := &Core{
		config:     c,
		hub:        hub,
		random:     random,
		ranking:    newRanking(c.Entries),
		streams:    newStreams(),
		demand:     newDemand(),
		laneMemory: newLaneMemory(),
		told:       told{unavailable: make(map[fanout.Lane]bool), silent: make(map[cache.TypeURL]fanout.Lane), excess: make(map[fanout.Lane]bool)},
		suspects:   newSuspects(),
		trials:     newTrials(),
	}
	core.main.attempts = &core.entries[0].attempts
	core.claims = newClaims(c.Node, c.NodeVaries)
	return core
}

// Effects returns what Core has learned since the last call.
func (c *Core) Effects() []Effect {
	effects := c.effects
	c.effects = nil
	return effects
}

// Interest reports that the interest of clients has changed.
func (c *Core) Interest(now time.Time) { c.changesAt = now }

// SetNode replaces the group's node. Open streams send it with their next request (NODE-2).
func (c *Core) SetNode(node *core.Node) {
	c.config.Node = node
	c.claims.set(nodeClaim, Claim{Node: node}, c.config.NodeVaries && len(node.GetDynamicParameters()) > 0)
	for _, s := range c.all() {
		if s.open() {
			s.stream.nodeSent = false
		}
	}
}

// SetVia sets the longest chain of relays through which clients come. A stream that was
// opened with a shorter one is opened again, since otherwise no relay on a loop could
// detect the loop (NODE-11).
func (c *Core) SetVia(via []string, now time.Time) {
	c.claims.set(wayClaim, Claim{Via: via}, len(via) > 0)
	for _, s := range c.all() {
		switch {
		case s.id == 0 || len(c.claims.via()) <= s.hops:
		case s.role == Main, s.role == Solo:
			c.replace(s, now)
		case s.role == Probe:
			c.shut(s)
		case s.role == Trial:
			c.dropTrial(now)
		}
	}
}

// Tick handles everything that is due: changes of interest, timers, attempts. The caller
// opens and closes the streams that it returns, and calls it again at Deadline.
func (c *Core) Tick(now time.Time) (open []Open, shut []StreamID) {
	for s := range c.openSlots() {
		c.tickTimers(s, now) // before any stream is replaced
	}
	c.tickLinger(now)
	if due(c.changesAt, now) {
		c.takeChanges(now)
	}
	c.tickRest(now)
	c.tellAlive(now)
	if types := c.hub.Lapsing(now); len(types) > 0 {
		c.emit(Elapsed{now})
		c.lookSoon(types, now)
	}
	for s := range c.openSlots() {
		c.tickStream(s, now)
	}
	c.tickClaims(now)
	c.tickTrial(now)
	c.failover(now)
	c.tellAvailability(now)
	c.tickProbes(now)
	for _, s := range c.all() {
		if due(s.openAt, now) {
			open = append(open, c.attempt(s, now))
		}
	}
	shut, c.closing = c.closing, nil
	return open, shut
}

// learned adds an update of a lane to the effects.
func (c *Core) learned(s *slot, lane fanout.Lane, u *cache.Update, now time.Time) {
	u.At, u.Stream, u.Age, u.AfterSwitch = now, uint64(s.id), now.Sub(s.opened), c.afterSwitch
	if c.resorting() {
		c.emit(Filled{lane, u})
		return
	}
	e := Learned{Lane: lane, Update: u}
	if lane.Type.Refers() {
		e.Prefetch = c.prefetched()
	}
	c.emit(e)
}

func (c *Core) tickStream(s *slot, now time.Time) {
	c.tickAlive(s, now)
	c.suspects.survivors(s, now)
	stream := s.stream
	for _, l := range stream.awake.looks(now) {
		if c.tickLane(s, l, now) {
			return // a new stream replaces it
		}
		stream.awake.writable.add(l)
		stream.awake.clock.Set(l, c.laneAt(s, l, now))
	}
}

// tickLane does what is due on a lane. It reports whether it has ended the stream.
func (c *Core) tickLane(s *slot, l *laneState, now time.Time) (over bool) {
	if c.tickUnanswered(s, l, now); !s.open() {
		return true
	}
	if c.tickBare(s, l, now) || c.tickFault(s, l, now) {
		return true
	}
	c.tickSilence(s, l, now)
	c.tellLeftOut(s, l, now)
	early, complete := l.settle.tick(now)
	if complete {
		c.learnsHabit(l)
	}
	if (complete || due(c.judgeAt(l), now)) && l.echo.judge() {
		c.reopen(s, l, now)
		return true
	}
	if early && !c.resorting() { // the last resort fills gaps, and says itself when a set is whole
		c.emit(Early{l.lane})
	}
	if !complete {
		return false
	}
	u := &cache.Update{Synced: true, Sweep: true}
	c.sweeps(s, l.lane, u)
	c.learned(s, l.lane, u, now)
	return false
}

// Deadline is when to call Tick next if nothing else happens. Zero means never.
func (c *Core) Deadline(now time.Time) time.Time {
	// TTLs run out while no stream is open, too.
	at := earlier(c.changesAt, c.hub.Expiry(), c.failoverAt(now), toCome(c.retireAt(), now), toCome(c.quietUntil, now), c.trialAt(now))
	if c.Proven(now) {
		at = earlier(at, c.lingerAt)
	}
	for i := range c.entries[:c.current] {
		p := &c.entries[i].probe
		at = earlier(at, p.openAt)
		if p.open() {
			at = earlier(at, c.probeDeadline(&c.entries[i]), toCome(p.opened.Add(c.config.Coalesce), now)) // it asks then
		}
	}
	for _, s := range c.slots() {
		at = earlier(at, s.openAt)
		if since := s.failingSince(); !since.IsZero() {
			at = earlier(at, toCome(since.Add(c.config.UnavailableAfter), now)) // clients learn of it then
		}
		if !s.open() {
			continue
		}
		at = earlier(at, toCome(s.opened.Add(trial), now), // the stream is proven then
			c.aliveAt(s), s.stream.deadline(c.missingAfter(), now), c.awakeAt(s, now))
	}
	return at
}

// Opened reports that a stream is open on a connected transport.
func (c *Core) Opened(id StreamID, now time.Time) {
	s := c.slot(id)
	if s == nil {
		return
	}
	s.opened, s.alive = now, liveness{heard: now}
	if s.role == Probe {
		c.probeOpened(s)
		return
	}
	s.stream = c.newStream(s, nil)
	if s.role == Main {
		c.entryOf(s).relay = false // until the server identifies itself on this stream
	}
	c.place(now)
	if s.open() { // place closes a stream that is not needed any more
		c.suspects.survivors(s, now)
	}
}

// Next is the next request to write on a stream, or nil.
func (c *Core) Next(id StreamID, now time.Time) proto.Message {
	s := c.slot(id)
	if !s.open() {
		return nil
	}
	return s.stream.next(c.claims.node(), now)
}

// Asks reports whether a stream carries a type now.
func (c *Core) Asks(id StreamID, t cache.TypeURL) bool { return c.slot(id).carries(t) }

// Ended reports that a stream has ended, or could not be opened.
func (c *Core) Ended(id StreamID, end End, now time.Time) {
	s := c.slot(id)
	if s == nil {
		return // Core has closed it
	}
	e := c.entryOf(s)
	if s.alive.stopped {
		end.Message = stopped // the relay has closed the connection
	}
	moves := s.open() && end.Kind == EndNoRoom // to another connection, to make room for others
	if !moves && s.role != Trial {             // a trial says nothing about the entry
		e.failed, e.failure, e.fails = now, end.Message, true
	}
	tooLong := end.Kind == EndExhausted && c.tooLong(s)
	refusal := end.Refused() && !tooLong // a status that may be about what was asked for
	method := e.refusesMethod(s, end)
	if method && s.role.decides() && c.otherVariant(s, now) {
		return
	}
	switch s.role {
	case Probe:
		c.stop(s)
		c.probeLater(e, now)
	case Trial:
		c.trialEnded(end, refusal, now) // the main stream shows that the method is there
	default:
		struck := false
		if !method || s.sotw {
			struck = refusal && c.blame(s, end.Message, now)
		}
		if !moves {
			s.ended(end, now)
		}
		again := moves || struck && s.attempts.failures == 0 // without the claim it is no repetition
		c.reschedule(s, end, again, now)
		c.place(now)
	}
}

// refusesMethod reports whether the end of a stream says that the server lacks the variant, and not a type.
func (e *entry) refusesMethod(s *slot, end End) bool {
	return end.Kind == EndUnimplemented && e.Mode == ModeAuto && !s.answered
}

// otherVariant notes that the entry lacks the variant of a stream that has ended, and reports whether the next one
// speaks SotW. A server without SotW may have Delta after all.
func (c *Core) otherVariant(s *slot, now time.Time) bool {
	e := c.entryOf(s)
	e.noDelta = !s.sotw
	if s.sotw {
		return false
	}
	c.stop(s)
	s.openAt = now // without a back-off, since the other variant is not a repetition
	c.notice(e, "the control plane does not implement Delta; speaking SotW to it")
	if s.role == Main {
		c.dropAux()
		c.aux.attempt = time.Time{}
	}
	return true
}

// blame judges what a stream has carried that the server has ended. It reports whether a claim may be to blame,
// and not a type.
func (c *Core) blame(s *slot, message string, now time.Time) (claim bool) {
	if !s.open() {
		return false
	}
	if c.strikes(s, message, now) {
		return true
	}
	for _, v := range c.suspects.blame(s, message, c.config.bounds().Quarantined, now) {
		c.emit(v)
	}
	return false
}

// reschedule forgets a stream that has ended, and decides when the next one is opened. again means that this is no
// failure, so that there is no back-off.
func (c *Core) reschedule(s *slot, end End, again bool, now time.Time) {
	answered := s.answered
	s.refused = end.Refused()
	c.stop(s)
	switch {
	case again:
		s.openAt = latest(now, s.attempt.Add(reconnectFloor))
	case answered:
		s.openAt = now.Add(s.attempts.ended(&c.config.Backoff, now, s.attempt, c.random()))
	default:
		s.openAt = now.Add(s.attempts.failed(&c.config.Backoff, c.random()))
	}
	if s.role == Main {
		e := c.entry()
		e.bare, c.afterSwitch = false, c.afterSwitch && !answered
		e.notBefore = s.openAt
		c.dropAux()
		if end.Kind != EndNoRoom {
			c.leave(now)
		}
	}
	if q := c.suspects.quarantined[s.lane.Type]; s.role == Solo && q != nil {
		s.outage.begin(now.Add(-c.config.UnavailableAfter), end) // its clients learn of it at once (H-39)
		q.message, q.notBefore = end.Message, s.openAt
	}
}

// Wait returns how long it is until the next attempt of a role, for the log.
func (c *Core) Wait(role Role, now time.Time) time.Duration {
	for _, s := range c.all() {
		if s.role == role && !s.openAt.IsZero() {
			return s.openAt.Sub(now)
		}
	}
	return 0
}
