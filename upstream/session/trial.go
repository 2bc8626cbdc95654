package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// A type that the entry in use has never answered may be one on which it ends the stream. So it goes
// up alone before it goes up with the others (UP-21): on a trial stream, of which there is one at a
// time. LDS, CDS, EDS, RDS and SDS are never tried, and neither is a type that is alone anyway,
// because the main stream carries nothing else.
//
//	parked -- its holder's turn (nextTrial) --> on trial
//	parked -- it has answered another group (pick), or the main stream ends --> placed again
//	on trial -- an answer, trial on a stream that is alive (concluded), or no room for a stream --> passed: it is placed like any other
//	on trial -- the stream ends (trialEnded) --> parked, with a back-off; or quarantined
//
// Trials need an open main stream. Without one the main stream's attempts, outage and failover are
// about whether the entry is there at all.

// trialFloor is the least time between a trial that failed and the next one.
const trialFloor = 100 * time.Millisecond

// ackGrace is how long a trial goes on after the answer, so that the ACK is on its way.
const ackGrace = 10 * time.Millisecond

// maxTurns bounds the holders whose turns are remembered.
const maxTurns = 1000

// trials has the types that are to be tried, and those that have passed. It ends with the entry.
type trials struct {
	// waiting are the types that wait for their trial or are on it, and passed those that had it and
	// have no answer yet. Both are wanted.
	waiting map[cache.TypeURL]*candidate
	passed  map[cache.TypeURL]bool
	// turns is when each holder last had a trial. turn counts trials, and types that come.
	turns map[string]uint64
	turn  uint64
	// pickAt is when to begin the next trial, if there is none; zero: nobody waits. notBefore is the
	// end of trialFloor.
	pickAt, notBefore time.Time
}

// candidate is a type that waits for its trial, or is on it.
type candidate struct {
	// parked: its lanes are not among those to be placed until its turn. Only an open main stream has
	// candidates that are parked.
	parked   bool
	tried    uint64 // its last turn, or before the first when it came
	strikes  int    // trials on which the server ended the stream
	attempts attempts
	// notBefore is when it may be tried again, and outage the time for which its trials have failed.
	notBefore time.Time
	outage    outage
}

func newTrials() *trials {
	return &trials{
		waiting: make(map[cache.TypeURL]*candidate),
		passed:  make(map[cache.TypeURL]bool),
		turns:   make(map[string]uint64),
	}
}

// park has a type wait for its trial.
func (t *trials) park(typ cache.TypeURL, now time.Time) {
	k := t.waiting[typ]
	if k == nil {
		t.turn++
		k = &candidate{tried: t.turn}
		t.waiting[typ] = k
	}
	k.parked = true
	t.pickAt = earlier(t.pickAt, latest(latest(now, t.notBefore), k.notBefore))
}

func (t *trials) parked(typ cache.TypeURL) bool {
	k := t.waiting[typ]
	return k != nil && k.parked
}

// unpark has the lanes of a parked type placed again.
func (c *Core) unpark(typ cache.TypeURL) {
	if c.trials.parked(typ) {
		c.trials.waiting[typ].parked = false
		c.loosen(fanout.Lane{Type: typ})
		c.loosen(fanout.Lane{Type: typ, Wildcard: true})
	}
}

// pass notes that a type needs no trial any more.
func (t *trials) pass(typ cache.TypeURL) {
	delete(t.waiting, typ)
	t.passed[typ] = true
}

// forget drops a type that nobody wants any more.
func (t *trials) forget(typ cache.TypeURL) {
	delete(t.waiting, typ)
	delete(t.passed, typ)
}

// wants reports whether a lane of a type is wanted.
func wants(wanted map[fanout.Lane]bool, t cache.TypeURL) bool {
	return wanted[fanout.Lane{Type: t}] || wanted[fanout.Lane{Type: t, Wildcard: true}]
}

// untried reports whether the entry in use must be asked for a type alone first. While one lane of a type
// is on trial, the other one waits.
func (c *Core) untried(t cache.TypeURL) bool {
	if c.trial.carries(t) {
		return true
	}
	return !t.Basic() && !c.trials.passed[t] && !c.answers(t)
}

// answers reports whether the entry in use has answered a type before (UP-21).
func (c *Core) answers(t cache.TypeURL) bool {
	name := c.entry().Name
	return c.config.Answers.has(name, t) || c.hub.Of(t).AnsweredBy(name)
}

// aloneOnMain reports whether the main stream carries no other type.
func (c *Core) aloneOnMain(t cache.TypeURL) bool {
	others := len(c.main.stream.lanes)
	if c.main.carries(t) {
		others--
	}
	return others == 0
}

// noTrial reports whether no lane is on trial, nor about to be.
func (c *Core) noTrial() bool { return c.trial.lane == (fanout.Lane{}) }

// mayPick reports whether it is time to pick the type of the next trial.
func (c *Core) mayPick(now time.Time) bool {
	return c.noTrial() && c.main.open() && due(c.trials.pickAt, now)
}

// nextTrial begins a trial if there is none: that of the type whose holder has waited for longest.
func (c *Core) nextTrial(wanted map[fanout.Lane]bool, now time.Time) {
	t := c.trials
	if !c.mayPick(now) {
		return
	}
	best, holder := c.pick(now)
	if best == "" {
		return
	}
	if len(t.turns) >= maxTurns {
		clear(t.turns)
	}
	t.turn++
	t.turns[holder], t.waiting[best].tried = t.turn, t.turn
	lane := fanout.Lane{Type: best, Wildcard: true}
	if s, _ := c.carrier(lane); s != nil || !wanted[lane] { // it went up while nothing else did
		lane.Wildcard = false
	}
	c.trial.lane = lane
	c.trial.openAt = now
	c.unpark(best)
}

// pick returns the parked type whose turn it is, and its holder; "": there is none yet.
func (c *Core) pick(now time.Time) (best cache.TypeURL, holder string) {
	t := c.trials
	t.pickAt = time.Time{}
	var turn uint64
	for typ, k := range t.waiting {
		switch {
		case !k.parked:
			continue
		case !c.untried(typ): // it has answered another group: place it first
			c.unpark(typ)
			delete(t.waiting, typ)
			t.pickAt = now
			continue
		case k.notBefore.After(now):
			t.pickAt = earlier(t.pickAt, k.notBefore)
			continue
		}
		h, at := c.hub.Of(typ).Asker(t.turns)
		if b := t.waiting[best]; b == nil || cmp.Or(cmp.Compare(at, turn), cmp.Compare(k.tried, b.tried)) < 0 {
			best, holder, turn = typ, h, at
		}
	}
	if due(t.pickAt, now) {
		return "", ""
	}
	return best, holder
}

// dropTrial ends the trial, whatever it has shown. If its type has not passed, it waits for another.
func (c *Core) dropTrial(now time.Time) {
	c.shut(&c.trial)
	c.trial.lane, c.trial.openAt, c.trial.outage = fanout.Lane{}, time.Time{}, outage{}
	c.trials.pickAt = latest(now, c.trials.notBefore)
}

// settleTrial ends the trial if it is over, or not needed any more: its lane is not wanted, or goes up
// on another stream.
func (c *Core) settleTrial(wanted map[fanout.Lane]bool, now time.Time) {
	if c.noTrial() {
		return
	}
	if lane := c.trial.lane; c.concluded(now) || !wanted[lane] || c.elsewhere(lane) {
		c.dropTrial(now)
	}
}

// elsewhere reports whether a lane is on another stream than the trial's, or goes up on one.
func (c *Core) elsewhere(lane fanout.Lane) bool {
	if s, _ := c.carrier(lane); s != nil {
		return s != &c.trial
	}
	return !c.untried(lane.Type)
}

// concluded reports whether the type on trial has passed it, and notes that it has: it has an answer,
// which is whole, or none after trial on a stream that is alive.
func (c *Core) concluded(now time.Time) bool {
	over := c.trialOver(now)
	if over {
		c.trials.pass(c.trial.lane.Type)
	}
	return over
}

func (c *Core) trialOver(now time.Time) bool {
	s, l := &c.trial, c.onTrial()
	if l == nil || !due(l.trialEnds(&c.config), now) {
		return false
	}
	return l.answered || c.attentive(s, l)
}

// trialEnds is the earliest end of the trial of a lane; zero: it is not asked for yet.
func (l *laneState) trialEnds(c *Config) time.Time {
	switch {
	case !l.answered:
		return addTo(l.askedAt, trial)
	case l.settle.waiting:
		return l.askedAt.Add(trial + c.SettleCap) // at the latest
	}
	return l.answeredAt.Add(ackGrace)
}

// tickTrial ends a trial that is over, and begins the next one.
func (c *Core) tickTrial(now time.Time) {
	if c.mayPick(now) || c.concluded(now) {
		c.place(now)
	}
}

// trialAt is when something is due about trials, or zero.
func (c *Core) trialAt(now time.Time) time.Time {
	switch l := c.onTrial(); {
	case c.noTrial() && c.main.open():
		return c.trials.pickAt
	case l == nil:
		return time.Time{}
	case c.trialOver(now):
		return now
	default:
		return toCome(l.trialEnds(&c.config), now)
	}
}

// onTrial is the lane on the trial stream, or nil.
func (c *Core) onTrial() *laneState {
	if s := &c.trial; s.open() {
		return s.stream.lanes[s.lane.Type]
	}
	return nil
}

// onlyTried stands for the trials of a type that waits for one, with their outage; nil: it does not wait.
func (c *Core) onlyTried(typ cache.TypeURL) *slot {
	k := c.trials.waiting[typ]
	if k == nil || !c.main.open() || c.suspects.convicted(typ) {
		return nil
	}
	return &slot{role: Trial, outage: k.outage}
}

// refusesType reports whether the outage is about the one type that the slot is for.
func (s *slot) refusesType() bool {
	return s.role == Solo || s.role == Trial && s.outage.last.Refused()
}

// trialEnded handles the end of the trial stream, or of an attempt to open it. It is a strike against
// the type if the server has ended it with a status, at once and without a response, while it serves
// the main stream. So many strikes as convict a suspect convict this type (H-39). refusal reports
// whether the status may be about the type.
func (c *Core) trialEnded(end End, refusal bool, now time.Time) {
	s, l, k := &c.trial, c.onTrial(), c.trials.waiting[c.trial.lane.Type]
	typ := s.lane.Type
	noRoom := end.Kind == EndNoRoom
	switch {
	case l.hasAnswer(), noRoom && !s.open(): // without room for a second stream it is asked for on the first
		c.trials.pass(typ)
	case k == nil || noRoom:
	default:
		s.ended(end, now)
		k.outage.begin(s.outage.since, end)
		k.notBefore = now.Add(k.attempts.failed(&c.config.Backoff, c.random()))
		c.trials.notBefore = now.Add(trialFloor)
		atOnce := l.asked() && !l.outlived(now)
		if refusal && atOnce && c.serves(now) {
			c.strike(typ, end.Message, now)
		}
	}
	c.stop(s)
	c.dropTrial(now)
	c.place(now)
}

// strike counts a trial against its type, and may convict it.
func (c *Core) strike(typ cache.TypeURL, message string, now time.Time) {
	k := c.trials.waiting[typ]
	if k.strikes++; k.strikes < convictAt {
		return
	}
	k.strikes = 0
	for _, v := range c.suspects.convict(typ, message, c.config.bounds().Quarantined, now) {
		c.emit(v)
	}
}

// serves reports whether the main stream works, so that the end of another one says something about
// what that one asked for.
func (c *Core) serves(now time.Time) bool {
	s := &c.main
	if !s.works() {
		return false
	}
	return s.answered || slices.ContainsFunc(s.stream.inOrder(), func(l *laneState) bool { return l.outlived(now) })
}

// addTo adds to a time, where zero means never.
func addTo(at time.Time, d time.Duration) time.Time {
	if at.IsZero() {
		return at
	}
	return at.Add(d)
}
