package session

import (
	"cmp"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Next returns the next response to send, or nil if there is none now. Each response is made from
// the state at the moment of its turn: only marks wait for a client that does not read, and the
// latest state wins (H-12). Types have their turn in the order in which they refer to each other.
// Removals of types whose resources replace each other go in it, others last, in the reverse order (ORDER-2).
func (s *Session) Next(now time.Time) (*Response, *End) {
	if len(s.chunks) > 0 {
		return s.chunk(now), nil
	}
	if end := s.askAgain(now); end != nil {
		return nil, end
	}
	marked := s.subscriber.Take()
	for _, st := range s.states {
		x := st.base()
		x.marked = x.marked || slices.Contains(marked, x.sub)
	}
	sp, end := s.choose(now)
	if sp == nil {
		return nil, end
	}
	return s.say(sp, now), nil
}

// Due reports whether Next may return a response or the end of the stream, or something waits to be sent.
func (s *Session) Due() bool {
	return len(s.chunks) > 0 || s.outage.next || slices.ContainsFunc(s.states, func(st state) bool { return st.due() })
}

// Settled reports whether the client has acknowledged or rejected every response.
func (s *Session) Settled() bool {
	return !slices.ContainsFunc(s.states, func(st state) bool { return len(st.base().unacked) > 0 })
}

// candidate is a type that has something to send.
type candidate struct {
	state
	plan
	takesAway bool // the response has removals
}

// choose finds the type that sends next: the first one with something to send in its turn, else the last one whose
// removals need not wait any longer. It starts over after every response, since a later type may refer to what has
// come meanwhile for an earlier one. No type goes on for ever: after a response it waits for the ACK.
func (s *Session) choose(now time.Time) (*candidate, *End) {
	s.endWait(now)
	chosen, removals := s.ask(now)
	waiting := chosen != nil || len(removals) > 0
	for _, sp := range slices.Backward(removals) {
		if chosen == nil && s.mayTakeAway(sp.base(), now) {
			chosen, sp.takesAway = sp, true
		} else {
			sp.later(&sp.plan)
		}
	}
	s.noteWait(now)
	s.schedule(now, chosen != nil)
	if waiting {
		return chosen, nil
	}
	end := s.hangUp(now)
	if end != nil && !s.outage.hurries && !s.waitingSince.IsZero() { // what waits goes first
		s.outage.hurries = true
		chosen, end = s.choose(now)
		s.outage.hurries = false
	}
	return chosen, end
}

// ask collects from the types up to the first one that has something to send in its turn. removals
// are the types before it whose removals go last.
func (s *Session) ask(now time.Time) (first *candidate, removals []*candidate) {
	for i, st := range s.states {
		x := st.base()
		if !st.due() {
			x.waitSince = time.Time{} // what was to go is not to go any more
			continue
		}
		sp := s.collect(st, now)
		if sp.late() {
			if !x.url.ReplacesAtOnce() && !s.succeeds(sp) {
				x.waitSince = cmp.Or(x.waitSince, now)
			}
			sp.takesAway = s.takesAwayInTurn(sp, s.states[i+1:], now)
		}
		switch {
		case sp.takesAway, sp.early():
			if sp.late() && !sp.takesAway {
				sp.later(&sp.plan)
			}
			return sp, removals
		case sp.late():
			removals = append(removals, sp)
		}
	}
	return nil, removals
}

// takesAwayInTurn reports whether removals go together with what else a type has to send, in the turn of
// the type. next are the types that are not asked yet.
func (s *Session) takesAwayInTurn(sp *candidate, next []state, now time.Time) bool {
	x := sp.base()
	if x.url.ReplacesAtOnce() {
		return !x.heldForCDS
	}
	if !sp.early() || s.succeeds(sp) { // what succeeds others goes after the ACK of what goes now
		return false
	}
	last := !slices.ContainsFunc(next, func(st state) bool { return st.due() || st.base().sub.Changed() })
	return last && s.mayTakeAway(x, now)
}

// mayTakeAway reports whether a type's removals need not wait any longer for changes of types that refer to
// Clusters, when all types have been asked. A change that came before the removals, and after its type was asked, is marked.
func (s *Session) mayTakeAway(x *exchange, now time.Time) bool {
	over := func(since time.Time) bool { return !since.IsZero() && !now.Before(since.Add(s.config.AckTimeout)) }
	if over(x.waitSince) || over(x.staysSince) {
		return true
	}
	return !slices.ContainsFunc(s.states, func(st state) bool {
		other := st.base()
		waits := other.sub.Changed() || st.due() && s.putsOff(other, now)
		return other.refers && waits
	})
}

// putsOff reports whether a type that was asked has changes that must wait.
func (s *Session) putsOff(x *exchange, now time.Time) bool {
	lacksAck := x.pending() && x.blocked(now, s.config.AckTimeout)
	return x.heldForCDS || x.reconciling() || lacksAck
}

// collect asks a type what it has to send. push says that changes may be sent, too, and not only answers.
func (s *Session) collect(st state, now time.Time) *candidate {
	x := st.base()
	sp := &candidate{state: st, plan: plan{mute: s.kind.V2}}
	// Clusters that something may refer to, and no longer waits for, are sent although others are not acknowledged.
	inVain := x.waitedInVain && s.referrersDue()
	push := inVain || !x.blocked(now, s.config.AckTimeout)
	x.waitsForCDS, x.heldForCDS = x.refers && s.holdsForCDS(), false
	if w, ok := st.(*sotwState); ok {
		w.turn = s.turns(st, now)
	}
	x.sub.Read(func(v fanout.View) {
		x.marked = false
		s.take(x, v.Marks())
		x.waitsForCDS = x.waitsForCDS || x.refers && s.overtakes()
		s.measure(sp, v)
		sp.position, sp.from, sp.pushed = v.Position(), x.sentTo, push && !x.waitsForCDS
		st.collect(v, push, &sp.plan)
		s.learn(v, sp)
		if x.waitsForCDS && !push {
			x.heldForCDS = x.heldForCDS || gains(st, v)
		}
	})
	if sp.pushed && !sp.late() {
		x.waitSince = time.Time{} // the removals that waited have become obsolete
	}
	if x.source == nil || st.due() || x.heldForCDS {
		return sp
	}
	if !sp.early() && !sp.late() {
		s.untell(x, now) // the change does not concern this client
	}
	return sp
}

// say makes the response of a candidate.
func (s *Session) say(sp *candidate, now time.Time) *Response {
	x := sp.base()
	r := &Response{
		Delta: s.kind.Delta, Wrapped: x.wraps, Type: x.url, Version: sp.version,
		Identifier: x.plane.text, // as it was measured
		Resources:  sp.resources, News: sp.news, Block: s.config.bounds().Block,
		Heartbeats: sp.heartbeats, Removed: sp.gone, Ends: sp.ends,
		Errors: make([]*discovery.ResourceError, 0, len(sp.errors)),
	}
	for _, e := range sp.errors {
		r.Errors = append(r.Errors, resourceError(e.name, e.status))
	}
	r.nameTooLarge(&sp.plan, s.config.MaxResponse)
	if sp.takesAway {
		r.Removed = slices.Concat(r.Removed, sp.removed)
		x.waitSince = time.Time{}
		sp.removedNow(&sp.plan)
	}
	if x.api == cache.Cluster {
		if s.kind.Type == "" {
			s.warm(sp.changed)
		}
		s.ofNode.deliveries.Add(1)
	}
	if sp.pushed {
		r.Source, x.source = x.source, nil
	}
	if x.sets && x.rejected != nil {
		x.rejected.From = x.rejected.To // the client is sent all of it again, or something newer
	}
	s.carried = s.carried || len(sp.resources)+len(sp.heartbeats) > 0
	s.chunks, s.chunked = s.fit(r, sp), sp
	return s.chunk(now)
}

// take adds the marks of a type's mailbox to what is to be sent.
func (s *Session) take(x *exchange, m fanout.Marks) {
	x.changed.give(m.Content)
	x.failed.give(m.Errors)
	x.members = x.members || m.Wildcard
	x.renewed.give(m.Renewed)
	x.membersRenewed = x.membersRenewed || m.WildcardRenewed
	x.doubtOver = x.doubtOver || m.Again
	if m.Source.Traced() && !x.source.Fits(m.Source) {
		s.untold = append(s.untold, Untold{m.Source, true})
	}
	x.source = x.source.With(x.measured(m.Source))
}

// measured returns the source of changes, without probes if the client has owed an ACK for so long that nobody
// waits for it.
func (x *exchange) measured(source *cache.Source) *cache.Source {
	if x.times.owed == 0 || !source.Measured() || source.At.Sub(clock(x.times.owed)) <= fanout.MaxConvergence {
		return source
	}
	return source.Leave()
}

// untell gives up the source of a type's changes, because no response will carry it.
func (s *Session) untell(x *exchange, now time.Time) {
	if x.source.Traced() {
		s.untold = append(s.untold, Untold{Source: x.source})
	}
	x.source.Done(now)
	x.source = nil
}

// leave gives up a type's subscription, and whatever waits for the client because of it.
func (s *Session) leave(x *exchange, now time.Time) {
	x.sub.Close(now)
	x.sub.Read(func(v fanout.View) { s.take(x, v.Marks()) })
	s.untell(x, now)
}

// Untold is a traced source that no response will carry.
type Untold struct {
	Source *cache.Source
	// Behind says that the client is too many updates behind; otherwise there was nothing to send to it.
	Behind bool
}

// Untold returns the sources that no response will carry, for tracing. If something traces,
// Untold must be called after Next and after Close.
func (s *Session) Untold() (untold []Untold) {
	untold, s.untold = s.untold, nil
	return untold
}

// Deadline returns when to call Next again though nothing was marked: when an ACK, or what
// removals wait for, is overdue, or when the stream may have to end. Zero means never.
func (s *Session) Deadline(now time.Time) (at time.Time) {
	wait := s.config.AckTimeout
	for _, st := range s.states {
		x := st.base()
		if st.due() {
			at = soonest(at, now, x.overdue(wait), x.waitSince.Add(wait), x.staysSince.Add(wait))
		}
		if x.refusal != nil {
			at = soonest(at, now, x.refusal.until)
		}
	}
	if !s.waitingSince.IsZero() {
		at = soonest(at, now, s.waitEnds())
	}
	return soonest(at, now, s.outage.endAt)
}

// soonest returns the first of some times that is still to come, or zero. Times in the past have
// been acted on, or wait for something else.
func soonest(at, now time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	return at
}
