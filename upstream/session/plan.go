package session

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// This file decides which lane goes on which stream. All lanes are on the main stream, with three
// exceptions. A type that was never answered is on trial first (UP-21). If a type is wanted both by name and by wildcard, its second lane is on the
// auxiliary stream (WILD-13). A quarantined lane has a stream of its own (H-39). A type never
// changes its lane on a stream, since a server keeps state for the type while the stream lives:
// go-control-plane, for example, answers a wildcard that follows names without the resources
// that it has sent by name.

// demand are the lanes on which something is wanted, as the Hub told. loose are those of them that no stream may carry,
// so that they are to be placed, except those of parked types (trials), and both the types of which both lanes are
// wanted.
type demand struct {
	wanted, loose map[fanout.Lane]bool
	both          map[cache.TypeURL]bool
}

func newDemand() demand {
	return demand{make(map[fanout.Lane]bool), make(map[fanout.Lane]bool), make(map[cache.TypeURL]bool)}
}

// set notes whether a lane is wanted. One that is has to be placed.
func (d *demand) set(lane fanout.Lane, wanted bool) {
	delete(d.both, lane.Type)
	if !wanted {
		delete(d.wanted, lane)
		delete(d.loose, lane)
		return
	}
	d.wanted[lane], d.loose[lane] = true, true
	if other := (fanout.Lane{Type: lane.Type, Wildcard: !lane.Wildcard}); d.wanted[other] {
		d.both[lane.Type] = true
	}
}

// loosen has a lane placed again, if it is wanted.
func (d *demand) loosen(lane fanout.Lane) {
	if d.wanted[lane] {
		d.loose[lane] = true
	}
}

// partEvery is the time between two parts of very many changes, in which others have their turn (UP-17).
const partEvery = 5 * time.Millisecond

// takeChanges passes changes of interest from the Hub to the streams.
func (c *Core) takeChanges(now time.Time) {
	var fresh []fanout.Lane
	changes, later := c.hub.Changes(now, func(lane fanout.Lane) (by fanout.Carrier, carried bool) {
		if s, l := c.carrier(lane); s != nil {
			return fanout.Carrier{Origin: s.stream.origin, Until: l.gathers, Most: s.stream.part()}, true
		}
		return by, false
	})
	if c.changesAt = later; later.Equal(now) { // there are more
		c.changesAt = now.Add(partEvery)
	}
	c.expectListeners(changes, now)
	for lane, i := range changes {
		if s, l := c.carrier(lane); s != nil {
			if l.returns(i) && !s.stream.takesBack(lane, now) {
				c.replace(s, now)
			} else {
				s.stream.change(l, i, now)
			}
		} else if len(i.Want) > 0 {
			fresh = append(fresh, lane)
		}
	}
	c.place(now)
	c.hasten(fresh)
}

// hasten shortens the back-off of the main stream for lanes that were not asked for yet, if the
// server ended the last stream. The server is there, and may refuse only another type (H-39).
func (c *Core) hasten(fresh []fanout.Lane) {
	s := &c.main
	if s.openAt.IsZero() || !s.refused {
		return
	}
	for _, lane := range fresh {
		if !c.suspects.suspected(lane.Type) {
			s.openAt = earlier(s.openAt, s.attempt.Add(reconnectFloor))
		}
	}
}

// carrier is the open stream that carries a lane, with the lane's state there, or nil.
func (c *streams) carrier(lane fanout.Lane) (*slot, *laneState) {
	for _, s := range [...]*slot{&c.main, &c.aux, &c.trial, c.solo[lane]} {
		if l := s.state(lane); l != nil {
			return s, l
		}
	}
	return nil, nil
}

// lanes returns the lanes on which something is wanted, after a look at what has changed. What is
// remembered of lanes that nobody wants any more is forgotten.
func (c *Core) lanes() map[fanout.Lane]bool {
	for lane, is := range c.hub.Flips() {
		if c.set(lane, is); !is {
			c.forget(lane)
		}
	}
	return c.wanted
}

// forget drops what is remembered of a lane that nobody wants any more.
func (c *Core) forget(lane fanout.Lane) {
	if s, l := c.carrier(lane); s != nil {
		s.stream.unused[l] = true
	}
	if c.silent[lane.Type] == lane {
		delete(c.silent, lane.Type)
	}
	if c.unavailable[lane] {
		c.tellAvailable(lane)
	}
	if !wants(c.wanted, lane.Type) {
		c.trials.forget(lane.Type)
	}
}

// place puts every wanted lane on a stream, and takes the others off. It looks only at lanes that no
// stream carries.
func (c *Core) place(now time.Time) {
	c.acquit()
	wanted := c.lanes()
	c.suspects.forget(wanted)
	c.settleTrial(wanted, now)
	// A stream may have added some of lanes that nobody wants any more.
	maps.DeleteFunc(c.accepted, func(lane fanout.Lane, _ acceptance) bool { return !wanted[lane] })
	maps.DeleteFunc(c.nameLists, func(lane fanout.Lane, _ *nameList) bool { s, _ := c.carrier(lane); return s == nil && !wanted[lane] })
	maps.DeleteFunc(c.bare, func(lane fanout.Lane, _ bool) bool { return !wanted[lane] })
	maps.DeleteFunc(c.faults, func(lane fanout.Lane, _ *fault) bool { return !wanted[lane] && !c.hub.On(lane).Uncertain().Any() })
	var untried []fanout.Lane
	for _, lane := range slices.SortedFunc(maps.Keys(c.loose), inPlan) {
		switch s, _ := c.carrier(lane); {
		case s != nil, !c.Allowed(lane.Type):
		case c.untried(lane.Type):
			untried = append(untried, lane) // once it is known what the main stream carries
		default:
			c.put(c.choose(lane, wanted), lane, now)
		}
	}
	for _, lane := range untried {
		c.put(c.try(lane, wanted, now), lane, now)
	}
	maps.DeleteFunc(c.loose, func(lane fanout.Lane, _ bool) bool {
		s, _ := c.carrier(lane)
		return s != nil || c.trials.parked(lane.Type)
	})
	if len(c.loose) == 0 {
		c.loose = emptied(c.loose)
	}
	c.release(wanted, now)
	c.nextTrial(wanted, now)
}

// put puts a lane on a stream; nil: it waits.
func (c *Core) put(s *slot, lane fanout.Lane, now time.Time) {
	if s == nil {
		return
	}
	if s.open() && !s.stream.takes(lane, now) {
		c.renew(now)
		s = &c.main
	}
	if s.open() {
		s.stream.carry(lane, c.suspects.suspected(lane.Type))
	} else {
		c.want(s, lane, now)
	}
}

// try returns the stream on which an untried lane belongs, or nil while it waits for its trial.
func (c *Core) try(lane fanout.Lane, wanted map[fanout.Lane]bool, now time.Time) *slot {
	switch on := &c.trial; {
	case c.suspects.convicted(lane.Type):
		return c.choose(lane, wanted)
	case on.open() && on.lane == lane:
		return on
	case on.open() && on.lane.Type == lane.Type:
		return nil
	case !c.main.open(), c.aloneOnMain(lane.Type):
		return c.choose(lane, wanted)
	case on.lane.Type != lane.Type: // otherwise its trial is being opened
		c.trials.park(lane.Type, now)
	}
	return nil
}

// inPlan is the order in which lanes are placed: wildcards first, so that after a reconnect
// they go on the main stream (WILD-16).
func inPlan(a, b fanout.Lane) int {
	switch {
	case a.Wildcard == b.Wildcard:
		return laneOrder(a, b)
	case a.Wildcard:
		return -1
	default:
		return 1
	}
}

// acquit ends the quarantine of types that the control plane has answered. Their solo streams
// go on until they end, and no longer count as failing: one that was not answered may be silent.
func (c *Core) acquit() {
	for lane, s := range c.solo {
		if c.suspects.convicted(lane.Type) && s.answered {
			delete(c.suspects.quarantined, lane.Type)
			c.emit(Resolution{Type: lane.Type})
			if other := c.solo[fanout.Lane{Type: lane.Type, Wildcard: !lane.Wildcard}]; other != nil {
				other.outage = outage{}
				other.wakeShown()
			}
		}
	}
}

// choose returns the stream on which a lane belongs, or nil if there are too many solo streams.
func (c *Core) choose(lane fanout.Lane, wanted map[fanout.Lane]bool) *slot {
	if q := c.suspects.quarantined[lane.Type]; q != nil {
		s := c.solo[lane]
		if s == nil && len(c.solo) < c.config.bounds().Solo {
			s = &slot{role: Solo, lane: lane, attempts: &q.attempts}
			c.solo[lane] = s
		}
		return s
	}
	first, carried := fanout.Lane{Type: lane.Type, Wildcard: true}, true
	if c.main.open() {
		first, carried = c.main.stream.lane(lane.Type)
	}
	if carried && first != lane && wanted[first] {
		return &c.aux
	}
	return &c.main // place may have to renew it
}

// want schedules a stream for a lane.
func (c *Core) want(s *slot, lane fanout.Lane, now time.Time) {
	if s.engaged() || s == &c.aux && !c.main.open() {
		return // the auxiliary stream follows the main one; any other is being opened, or will be
	}
	s.openAt = latest(now, s.attempt.Add(reconnectFloor))
	if q := c.suspects.quarantined[lane.Type]; s.role == Solo && q.outlasts(s.openAt) {
		s.outage.begin(now.Add(-c.config.UnavailableAfter), End{Message: q.message})
		s.openAt = latest(s.openAt, q.notBefore)
	} // otherwise clients wait for the outcome of the attempt
}

// release takes lanes that are not used any more off their streams, and ends solo and auxiliary
// streams that are not needed.
func (c *Core) release(wanted map[fanout.Lane]bool, now time.Time) {
	for s := range c.openSlots() {
		for l := range s.stream.unused {
			t := l.lane.Type
			delete(s.stream.unused, l)
			if s.stream.lanes[t] != l {
				continue
			}
			if c.done(l, wanted) {
				s.stream.drop(t, now)
				c.loosen(l.lane)
			}
		}
	}
	for lane, s := range c.solo {
		if !wanted[lane] || !c.suspects.convicted(lane.Type) && !s.open() {
			c.shut(s)
			delete(c.solo, lane)
		}
	}
	if c.aux.engaged() && !c.needed() {
		busy := c.aux.open() && slices.ContainsFunc(c.aux.stream.inOrder(), func(l *laneState) bool { return wanted[l.lane] })
		c.shutAux()
		if busy {
			c.renew(now) // its lanes belong on the main stream, and the present one cannot carry them
		}
	}
}

// done reports whether a lane can go off its stream: nothing of it is subscribed, or it is not asked for yet and
// not wanted any more. Names stay where the server may send what nobody asked for (UP-9).
func (c *Core) done(l *laneState, wanted map[fanout.Lane]bool) bool {
	if !l.asked() {
		return !wanted[l.lane]
	}
	stays := !l.lane.Wildcard && c.hub.Of(l.lane.Type).SendsUnasked()
	return l.idle() && !stays
}

// replace ends a stream and schedules a new one. For the auxiliary stream it renews the main one.
func (c *Core) replace(s *slot, now time.Time) {
	switch s.role {
	case Solo:
		c.shutUntil(s, now)
	case Trial:
		c.dropTrial(now)
	default:
		c.renew(now)
	}
}

// renew replaces the main stream. The new one shows the versions in the Hub, so that the
// server sends nothing twice.
func (c *Core) renew(now time.Time) {
	if c.main.id == 0 {
		return
	}
	c.shutAux()
	c.shutUntil(&c.main, now)
}

// shutUntil closes a stream, if there is one, and opens another at a time, or when reconnectFloor
// is over.
func (c *Core) shutUntil(s *slot, at time.Time) {
	c.shut(s)
	s.openAt = latest(at, s.attempt.Add(reconnectFloor))
}

// dropAux ends the auxiliary stream together with the main one, so that all lanes are placed
// again (WILD-16).
func (c *Core) dropAux() {
	c.shutAux()
	*c.aux.attempts, c.aux.outage = attempts{}, outage{}
}

// shutAux ends the auxiliary stream, and schedules no other.
func (c *Core) shutAux() {
	c.shut(&c.aux)
	c.aux.openAt = time.Time{}
}

// needed reports whether the auxiliary stream is: a type is wanted both by name and by wildcard.
func (c *Core) needed() bool {
	for t := range c.both {
		if !c.suspects.convicted(t) {
			return true
		}
	}
	return false
}

// Allowed reports whether a type may be asked for (H-39).
func (c *Core) Allowed(t cache.TypeURL) bool {
	return len(c.config.Types) == 0 || slices.Contains(c.config.Types, t)
}

// tellAvailability tells the Hub which lanes become unavailable, in the order of types (ORDER-2), and
// which are available again.
func (c *Core) tellAvailability(now time.Time) {
	wanted := c.lanes()
	var fail []Availability
	for lane := range c.mayFail(wanted) {
		message := c.whyUnavailable(lane, wanted, now)
		switch fails := message != ""; {
		case fails == c.unavailable[lane]: // the Hub knows
		case !fails:
			c.tellAvailable(lane)
		default:
			c.unavailable[lane] = true
			fail = append(fail, Availability{lane, &statuspb.Status{Code: cache.Unavailable, Message: message}})
		}
	}
	slices.SortFunc(fail, func(a, b Availability) int { return cmp.Compare(a.Lane.Type.Rank(), b.Lane.Type.Rank()) })
	for _, e := range fail {
		c.emit(e)
	}
}

// mayFail returns the lanes that may be unavailable, or were: those that no stream carries, except those
// that only wait for their trial, and those on streams that fail.
func (c *Core) mayFail(wanted map[fanout.Lane]bool) map[fanout.Lane]bool {
	if c.main.fails() {
		return wanted
	}
	lanes := maps.Clone(c.unavailable)
	maps.Copy(lanes, c.loose)
	for t, k := range c.trials.waiting {
		if k.outage.on() {
			for _, lane := range [...]fanout.Lane{{Type: t}, {Type: t, Wildcard: true}} {
				lanes[lane] = wanted[lane]
			}
		}
	}
	for s := range c.openSlots() {
		if s.fails() {
			for _, l := range s.stream.lanes {
				lanes[l.lane] = wanted[l.lane]
			}
		}
	}
	maps.DeleteFunc(lanes, func(_ fanout.Lane, is bool) bool { return !is })
	return lanes
}

func (c *Core) tellAvailable(lane fanout.Lane) {
	delete(c.unavailable, lane)
	c.emit(Availability{Lane: lane})
}

// judgedBy is the slot whose outage makes a lane unavailable, or nil if there is no room for one. A type
// that waits for its trial is judged by the trials that it had, and without a main stream by that.
func (c *Core) judgedBy(lane fanout.Lane, wanted map[fanout.Lane]bool) *slot {
	if c.resorting() {
		return &c.main // it has the outage of the others
	}
	s, _ := c.carrier(lane)
	if s != nil {
		return s
	}
	if s = c.onlyTried(lane.Type); s != nil {
		return s
	}
	if s = c.choose(lane, wanted); s == &c.aux && !c.main.open() {
		s = &c.main
	}
	return s
}

// whyUnavailable returns why a lane is unavailable, or "".
func (c *Core) whyUnavailable(lane fanout.Lane, wanted map[fanout.Lane]bool, now time.Time) string {
	if !c.Allowed(lane.Type) {
		return "xds-relay: " + strings.TrimSpace(string(lane.Type)) + " is not among upstream.types"
	}
	s := c.judgedBy(lane, wanted)
	if s == nil {
		return "xds-relay: the control plane refuses this type"
	}
	if since := s.failingSince(); since.IsZero() || now.Sub(since) < c.config.UnavailableAfter || c.quietUntil.After(now) {
		return "" // clients do not learn of it yet (ERR-7)
	}
	if s.refusesType() {
		return "xds-relay: the control plane refuses this type: " + s.outage.last.Message
	}
	if s.outage.last.Kind == EndDenied {
		return "xds-relay: the control plane refuses the relay: " + s.outage.last.Message
	}
	return "xds-relay: the control plane does not answer: " + cmp.Or(s.outage.last.Message, "there is no connection to it yet")
}
