package downstream

import (
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Next is the next response to send, or nil if there is none at this moment. What
// has piled up goes out as one flush: additions in the order in which types refer
// to each other, then removals in the reverse order (ORDER-2).
func (s *Session) Next(now time.Time) (*Response, *End) {
	if len(s.queue) == 0 {
		if end := s.flush(now); end != nil {
			return nil, end
		}
	}
	if len(s.queue) == 0 {
		return nil, nil
	}
	r := s.queue[0]
	s.queue = s.queue[1:]
	s.carried = true
	if r.Type == cache.Cluster {
		s.warmth.deliver(s.node.GetId())
	}
	return r, nil
}

// speaker is a type that has something to say in a flush.
type speaker struct {
	state
	part
	pushed bool // changes were collected, too
}

// flush fills the queue.
func (s *Session) flush(now time.Time) *End {
	for _, sub := range s.subscriber.Take() {
		if st := s.bySub[sub]; st != nil {
			st.base().marked = true
		}
	}
	speakers, blocked, end := s.collect(now)
	if end != nil {
		return end
	}
	s.hold(speakers, blocked, now)

	removals := speakers[:0:0]
	for _, sp := range speakers {
		x := sp.base()
		alone := !slices.ContainsFunc(speakers, func(o *speaker) bool { return o != sp && o.early() })
		together := sp.late() && alone && s.released(x, now)
		switch {
		case sp.early():
			s.say(sp, true, together, now)
			if sp.late() && !together {
				sp.later(&sp.part) // after the ACK of what goes now
			}
		case sp.late() && s.released(x, now):
			removals = append(removals, sp)
		case sp.late():
			sp.later(&sp.part)
		}
	}
	slices.Reverse(removals)
	for _, sp := range removals {
		s.say(sp, false, true, now)
	}
	return nil
}

// collect asks every type what it has to say. blocked are those whose changes
// wait for an ACK.
func (s *Session) collect(now time.Time) (speakers []*speaker, blocked []*exchange, end *End) {
	content := false
	for _, st := range s.states {
		x := st.base()
		if !x.marked && !st.due() {
			continue
		}
		sp := &speaker{state: st, pushed: !x.blocked(now, s.config.AckTimeout)}
		x.sub.Read(func(v fanout.View) {
			x.marked = false
			x.take(v.Marks())
			sp.part = st.collect(v, sp.pushed)
		})
		if !sp.pushed && x.pending() {
			blocked = append(blocked, x)
		}
		if x.url == cache.Cluster && s.kind.Type == "" {
			s.warm(sp.changed)
		}
		content = content || sp.early() || sp.late()
		speakers = append(speakers, sp)
	}
	for _, sp := range speakers {
		if sp.starving != nil && !s.carried && !content {
			return nil, nil, &End{Unreachable, sp.starving.GetMessage()}
		}
		if s.carried || content {
			sp.errors = append(sp.errors, sp.unavailable...)
		}
	}
	return speakers, blocked, nil
}

// hold makes new removals wait for what is pending now, and for that only
// (ORDER-2).
func (s *Session) hold(speakers []*speaker, blocked []*exchange, now time.Time) {
	for _, st := range s.states {
		x := st.base()
		x.waitFor = slices.DeleteFunc(x.waitFor, func(o *exchange) bool { return !slices.Contains(blocked, o) })
	}
	for _, sp := range speakers {
		x := sp.base()
		if sp.pushed && !sp.late() {
			x.waitSince, x.waitFor = time.Time{}, nil // what waited has been taken back
		}
		if sp.late() && x.waitSince.IsZero() {
			x.waitSince = now
			x.waitFor = slices.DeleteFunc(slices.Clone(blocked), func(o *exchange) bool { return o == x })
		}
	}
}

// released: a type's removals need not wait any longer.
func (s *Session) released(x *exchange, now time.Time) bool {
	return len(x.waitFor) == 0 || !now.Before(x.waitSince.Add(s.config.AckTimeout))
}

// say queues a response with what is early, late, or both.
func (s *Session) say(sp *speaker, early, late bool, now time.Time) {
	x := sp.base()
	r := &Response{
		Delta: s.kind.Delta, Type: x.url, Version: sp.version,
		Identifier: identifier(s.config.Instance, x.hub.Identifier()),
	}
	if early || sp.shrunk {
		r.Resources = sp.resources
	}
	if early {
		r.Removed = sp.gone
		r.Errors = make([]*discovery.ResourceError, 0, len(sp.errors))
		for _, e := range sp.errors {
			r.Errors = append(r.Errors, resourceError(e.name, e.status))
		}
	}
	if late {
		r.Removed = slices.Concat(r.Removed, sp.removed)
		x.waitSince, x.waitFor = time.Time{}, nil
		sp.removedNow(&sp.part)
	}
	r.Nonce = x.nonce(sp.position, sp.answer, &s.counter)
	x.sending(r.Nonce, sp.position, sp.answer, now)
	s.queue = append(s.queue, r)
}

// identifier is what the relay calls itself (DOWN-DELTA-19).
func identifier(instance, upstream string) string {
	id := "xds-relay/" + instance
	if upstream != "" {
		id += " [" + upstream + "]"
	}
	return id
}

// Deadline is when to call Next again though nothing was marked: when an ACK, or
// what removals wait for, is overdue. Zero: never.
func (s *Session) Deadline(now time.Time) (at time.Time) {
	for _, st := range s.states {
		x := st.base()
		if !st.due() {
			continue
		}
		// What is past has been looked at, or waits for something else.
		for _, t := range []time.Time{x.overdue(s.config.AckTimeout), x.waitSince.Add(s.config.AckTimeout)} {
			if t.After(now) && (at.IsZero() || t.Before(at)) {
				at = t
			}
		}
	}
	return at
}
