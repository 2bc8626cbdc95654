package upstream

import (
	"slices"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Core is the upstream side of one group without any IO: streams open, deliver
// and end; interest changes; time passes. What it wants done comes back from Tick
// and Next, what it has learned from Effects. Not safe for concurrent use.
type Core struct {
	config Config
	hub    *fanout.Hub
	random func() float64

	// Streams. Solo ones carry one quarantined lane each.
	main, aux slot
	solo      map[fanout.Lane]*slot
	lastID    StreamID
	closing   []StreamID

	// What outlives streams.
	suspects *suspects
	told     map[fanout.Lane]*statuspb.Status // unavailability that the Hub knows of

	via []string // the longest way by which clients come (NODE-11)

	// Interest changed, and is to be looked at then; zero: it has not.
	changesAt time.Time
	lingerAt  time.Time

	effects []Effect
}

// StreamID numbers the attempts to open a stream.
type StreamID uint64

// Role is what a stream is for.
type Role string

const (
	Main      Role = "main" // everything, save what follows
	Auxiliary Role = "aux"  // the second lane of types wanted both ways (WILD-13)
	Solo      Role = "solo" // one quarantined type (H-39)
)

// Effect is something learned, to be carried out in order and outside of all
// locks.
type Effect struct {
	Lane fanout.Lane
	// Update is to be applied to the Hub.
	Update *cache.Update
	// Expire is the time up to which resources expire; zero: none does (TTL-2).
	Expire time.Time
	// Availability: the Hub is to be told Status, nil for available (ERR-7).
	Availability bool
	Status       *statuspb.Status
	// Suspect: the type was convicted or, if false, acquitted.
	Conviction bool
	Suspect    bool
	// Identifier of the control plane, if it is news.
	Identifier string
	// Drop names a response or resource that was not used, for a counter.
	Drop string
}

// Apply carries an effect out.
func (e Effect) Apply(hub *fanout.Hub) {
	switch {
	case e.Update != nil:
		hub.Apply(e.Lane, e.Update)
	case !e.Expire.IsZero():
		hub.ExpireResources(e.Expire)
	case e.Availability:
		hub.SetUnavailable(e.Lane, e.Status)
	case e.Conviction:
		hub.SetSuspect(e.Lane.Type, e.Suspect)
	case e.Identifier != "":
		hub.SetIdentifier(e.Identifier)
	}
}

// slot is one stream and, between streams, the schedule of the next.
type slot struct {
	role Role
	lane fanout.Lane // of a solo slot

	// The schedule; survives the stream.
	backoff *Backoff
	openAt  time.Time // zero: not wanted
	attempt time.Time // when the last attempt began
	refused bool      // the last end was a status from the server

	// failing since then; zero: it works (ERR-7).
	failingSince time.Time
	message      string

	// The stream; all of it dies with it.
	id       StreamID // zero: none
	opened   time.Time
	hops     int         // the length of the way it has told
	delta    *deltaState // nil: not open yet
	answered bool
}

func (s *slot) open() bool { return s.delta != nil }

// NewCore returns the upstream side of a group. random yields numbers in [0, 1).
func NewCore(c Config, hub *fanout.Hub, random func() float64) *Core {
	main, aux := c.Backoff, c.Backoff
	return &Core{
		config:   c,
		hub:      hub,
		random:   random,
		main:     slot{role: Main, backoff: &main},
		aux:      slot{role: Auxiliary, backoff: &aux},
		solo:     make(map[fanout.Lane]*slot),
		suspects: newSuspects(),
		told:     make(map[fanout.Lane]*statuspb.Status),
	}
}

// Effects takes what was learned since the last call.
func (c *Core) Effects() []Effect {
	e := c.effects
	c.effects = nil
	return e
}

// Interest says that the Hub's Wanted has something new.
func (c *Core) Interest(now time.Time) {
	if c.changesAt.IsZero() {
		c.changesAt = now.Add(c.config.Coalesce)
	}
}

// SetNode says what the group says of itself from now on; streams that are open say
// it with their next request (NODE-2).
func (c *Core) SetNode(node *core.Node) {
	c.config.Node = node
	for _, s := range c.slots() {
		if s.open() {
			s.delta.nodeSent = false
		}
	}
}

// SetVia says on which way clients have come, the longest there is. A stream that
// has told a shorter one is opened anew: were there a loop, nobody on it could tell
// otherwise (NODE-11).
func (c *Core) SetVia(via []string, now time.Time) {
	c.via = via
	for _, s := range c.slots() {
		switch {
		case s.id == 0 || len(via) <= s.hops:
		case s.role == Main:
			c.renew(now)
		case s.role == Solo:
			c.shut(s)
			s.openAt = latest(now, s.attempt.Add(reconnectFloor))
		}
	}
}

// Open is a stream that is to be opened now.
type Open struct {
	ID   StreamID
	Role Role
	// Via are the relays it comes through, this one last (NODE-11).
	Via []string
}

// Tick looks at everything that is due: interest, timers, attempts. The caller
// opens and closes what it returns, and calls again at Deadline.
func (c *Core) Tick(now time.Time) (open []Open, shut []StreamID) {
	if c.main.open() && !c.lingerAt.After(now) {
		c.lingerAt = c.hub.Expire(now)
	}
	if !c.changesAt.IsZero() && !c.changesAt.After(now) {
		c.changesAt = time.Time{}
		c.takeChanges(now)
	}
	if at := c.hub.Expiry(); !at.IsZero() && !at.After(now) {
		c.effects = append(c.effects, Effect{Expire: now})
	}
	for _, s := range c.slots() {
		if s.open() {
			c.tickStream(s, now)
		}
	}
	c.tellAvailability(now)
	for _, s := range c.slots() {
		if s.id == 0 && !s.openAt.IsZero() && !s.openAt.After(now) {
			c.lastID++
			s.id, s.attempt, s.openAt, s.answered = c.lastID, now, time.Time{}, false
			if s.failingSince.IsZero() {
				s.failingSince = now
			}
			s.hops = len(c.via)
			open = append(open, Open{s.id, s.role, append(slices.Clone(c.via), c.config.Instance)})
		}
	}
	shut, c.closing = c.closing, nil
	return open, shut
}

func (c *Core) slots() []*slot {
	slots := []*slot{&c.main, &c.aux}
	for _, s := range c.solo {
		slots = append(slots, s)
	}
	return slots
}

func (c *Core) tickStream(s *slot, now time.Time) {
	if now.Sub(s.opened) >= trial && s.role != Solo {
		s.failingSince = time.Time{} // a solo stream works when it answers
	}
	c.suspects.survivors(s, now)
	learned := func(lane fanout.Lane, u *cache.Update) {
		c.effects = append(c.effects, Effect{Lane: lane, Update: u})
	}
	s.delta.timers.expired(&c.config, now, func(lane fanout.Lane, names []string) {
		if c.config.explicitMissing() {
			learned(lane, &cache.Update{Unanswered: names})
		} else {
			learned(lane, &cache.Update{Missing: names})
		}
	}, func(lane fanout.Lane, names []string) {
		learned(lane, &cache.Update{Overdue: names})
	})
	for _, l := range s.delta.lanes {
		l.insist(now)
		if l.settle.tick(now) {
			learned(l.lane, &cache.Update{Synced: true, Sweep: true})
		}
	}
}

// Deadline is when to call Tick next, if nothing else happens; zero: never.
func (c *Core) Deadline(now time.Time) time.Time {
	// TTLs are there for the time in which no stream is open.
	at := earlier(c.changesAt, c.hub.Expiry())
	if c.main.open() {
		at = earlier(at, c.lingerAt)
	}
	for _, s := range c.slots() {
		if s.id == 0 {
			at = earlier(at, s.openAt)
		}
		if !s.failingSince.IsZero() {
			if told := s.failingSince.Add(c.config.UnavailableAfter); told.After(now) {
				at = earlier(at, told)
			}
		}
		if !s.open() {
			continue
		}
		if !s.failingSince.IsZero() && s.role != Solo {
			at = earlier(at, s.opened.Add(trial))
		}
		at = earlier(at, s.delta.timers.deadline(&c.config))
		for _, l := range s.delta.lanes {
			at = earlier(earlier(at, l.settle.deadline()), l.insistence())
			if !l.held && !l.first && !l.answered && now.Sub(l.askedAt) < trial {
				at = earlier(at, l.askedAt.Add(trial))
			}
		}
	}
	return at
}

// Opened says that a stream is up, on a connected transport.
func (c *Core) Opened(id StreamID, now time.Time) {
	s := c.slot(id)
	if s == nil {
		return
	}
	s.opened = now
	s.delta = newDeltaState(&c.config)
	if s.role == Main {
		c.config.relay = false // until the server says so on this stream
	}
	c.lingerAt = c.hub.Expire(now) // what lingered too long meanwhile is not asked for again
	c.place(now)
	if s.open() { // it may have turned out not to be needed any more
		c.suspects.survivors(s, now)
	}
}

// Next is the next request to write on a stream, or nil.
func (c *Core) Next(id StreamID, now time.Time) *discovery.DeltaDiscoveryRequest {
	s := c.slot(id)
	if s == nil || !s.open() {
		return nil
	}
	return s.delta.next(c.hub, c.config.Node, now)
}

// Receive takes in a response. After its Effects have been carried out, the
// caller calls Applied, so that an ACK means that the Hub has it (design.md).
func (c *Core) Receive(id StreamID, d *Response, now time.Time) {
	s := c.slot(id)
	if s == nil || !s.open() {
		return
	}
	s.answered, s.failingSince, s.message = true, time.Time{}, ""
	c.config.learn(d.identifier)
	if d.identifier != "" && d.identifier != c.hub.Identifier() {
		c.effects = append(c.effects, Effect{Identifier: d.identifier})
	}
	lane, ours := s.delta.used[d.typeURL]
	if !ours {
		c.effects = append(c.effects, Effect{Drop: "unsubscribed_type"}) // UP-10
		return
	}
	c.suspects.clear(d.typeURL)
	d.update.At = now
	for _, r := range d.bodyless {
		name, _ := cache.NameOf(r)
		switch {
		case d.typeURL != cache.VirtualHost && c.hub.Holds(lane, name, r.GetVersion()):
			d.update.Heartbeats = append(d.update.Heartbeats, cache.Heartbeat{Name: name, TTL: r.GetTtl().AsDuration()})
		case len(r.GetAliases()) > 0:
			d.update.Negative = append(d.update.Negative, cache.NewResource(d.typeURL, r, c.config.Fingerprint))
		default:
			d.fault("%q has no body, and is neither a heartbeat nor a negative answer", name)
		}
	}
	l := s.delta.lanes[d.typeURL]
	if l == nil {
		return // nobody wants it any more: ACK and drop (H-32)
	}
	l.answered = true
	l.answers(&d.update)
	if l.lane.Wildcard {
		d.adds = c.hub.Lacks(lane, d.update.Set)
		d.update.Synced = l.settle.response(d.nonce, &c.config)
		d.update.Sweep = d.update.Synced
	}
	if !d.update.Empty() {
		c.effects = append(c.effects, Effect{Lane: lane, Update: &d.update})
	}
}

// Applied lets the answer to a response go: an ACK, or a NACK if it was not
// structurally sound. overrun: the control plane sends without reading.
func (c *Core) Applied(id StreamID, d *Response, now time.Time) (nack string, overrun bool) {
	s := c.slot(id)
	if s == nil || !s.open() {
		return "", false
	}
	if _, ours := s.delta.used[d.typeURL]; !ours {
		return "", false
	}
	if l := s.delta.lanes[d.typeURL]; l != nil && l.lane.Wildcard {
		l.settle.applied(d.adds, &c.config, now)
	}
	nack = d.nack()
	s.delta.acks = append(s.delta.acks, verdict{d.typeURL, d.nonce, nack})
	return nack, len(s.delta.acks) > maxAcks
}

// End is how a stream ended.
type End struct {
	// Refused: the server ended it with a status of its own; otherwise the
	// transport broke, or never was.
	Refused bool
	Message string
}

// Ended says that a stream is gone, or could not be opened.
func (c *Core) Ended(id StreamID, end End, now time.Time) {
	s := c.slot(id)
	if s == nil {
		return // it was shut
	}
	if s.open() && end.Refused {
		if t, ok := c.suspects.blame(s, end.Message, c.config.Backoff, now); ok {
			c.effects = append(c.effects,
				Effect{Lane: fanout.Lane{Type: t}, Conviction: true, Suspect: true})
		}
	}
	if s.failingSince.IsZero() {
		s.failingSince = now
	}
	s.message, s.refused = end.Message, end.Refused
	wait := time.Duration(0)
	if s.answered {
		wait = s.backoff.Ended(now, s.attempt, c.random())
	} else {
		wait = s.backoff.Failed(c.random())
	}
	c.stop(s)
	s.openAt = now.Add(wait)
	if s.role == Main {
		c.shut(&c.aux) // which lane goes where is decided anew (WILD-16)
		*c.aux.backoff, c.aux.openAt, c.aux.failingSince = c.config.Backoff, time.Time{}, time.Time{}
	}
	if q := c.suspects.quarantined[s.lane.Type]; s.role == Solo && q != nil {
		s.failingSince = now.Add(-c.config.UnavailableAfter) // its clients are told at once (H-39)
		q.message, q.notBefore = end.Message, s.openAt
	}
	c.place(now)
}

// Wait is how long until the next attempt of a role, for the log.
func (c *Core) Wait(role Role, now time.Time) time.Duration {
	for _, s := range c.slots() {
		if s.role == role && !s.openAt.IsZero() {
			return s.openAt.Sub(now)
		}
	}
	return 0
}

func (c *Core) slot(id StreamID) *slot {
	for _, s := range c.slots() {
		if s.id == id && id != 0 {
			return s
		}
	}
	return nil
}

// stop forgets a stream that is gone.
func (c *Core) stop(s *slot) { s.id, s.delta, s.answered = 0, nil, false }

// shut ends a stream of our own accord.
func (c *Core) shut(s *slot) {
	if s.id != 0 {
		c.closing = append(c.closing, s.id)
		c.stop(s)
		s.failingSince, s.message = time.Time{}, ""
	}
}
