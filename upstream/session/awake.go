package session

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// A stream may carry thousands of lanes to which nothing happens. So the Core looks only at those that
// are awake: to which something has happened since it last looked, or whose time has come. Whoever
// changes a lane wakes it.

// awake says which lanes of a stream are to be looked at. It ends with the stream.
type awake struct {
	lanes map[*laneState]bool
	// clock is when to look at the others.
	clock cache.Deadlines[*laneState]
	// shown are the wildcards that were asked for with versions and are not answered: whether to look
	// at them depends on the stream (bareAt).
	shown    map[*laneState]bool
	writable writable
	held     bool // a lane may be held
}

func newAwake() awake {
	return awake{lanes: make(map[*laneState]bool), shown: make(map[*laneState]bool), writable: writable{lanes: make(map[*laneState]bool)}}
}

// wake has the Core look at a lane that was changed.
func (s *streamState) wake(l *laneState) {
	if s.lanes[l.lane.Type] == l {
		s.awake.lanes[l] = true
		s.awake.writable.add(l)
	}
}

// writable are the lanes that may have a request to write.
type writable struct {
	lanes map[*laneState]bool
	// order has them in the order in which they are asked for, and others that were done since; nil: it
	// is to be made.
	order []*laneState
}

func (w *writable) add(l *laneState) {
	if !w.lanes[l] && l.writes() {
		w.lanes[l], w.order = true, nil
	}
}

func (w *writable) remove(l *laneState) { delete(w.lanes, l) }

// inOrder returns the lanes in the order in which they are asked for.
func (w *writable) inOrder() []*laneState {
	if w.order == nil {
		if len(w.lanes) == 0 {
			w.lanes = emptied(w.lanes)
		}
		w.order = inTurn(w.lanes)
	}
	for len(w.order) > 0 && !w.lanes[w.order[0]] {
		w.order = w.order[1:]
	}
	return w.order
}

// wakeAll has the Core look at all lanes of all streams.
func (c *Core) wakeAll() {
	for s := range c.openSlots() {
		for _, l := range s.stream.lanes {
			s.stream.wake(l)
		}
	}
}

// wakeShown has the Core look at the lanes that depend on how a stream fares.
func (s *slot) wakeShown() {
	if s.open() {
		for l := range s.stream.awake.shown {
			s.stream.wake(l)
		}
	}
}

// sleeps takes a lane off that the stream does not carry any more.
func (a *awake) sleeps(l *laneState) {
	delete(a.lanes, l)
	a.writable.remove(l)
	delete(a.shown, l)
	a.clock.Set(l, time.Time{})
}

// looks returns the lanes to look at now, in the order in which they are asked for.
func (a *awake) looks(now time.Time) []*laneState {
	for _, l := range a.clock.Due(now) {
		a.lanes[l] = true
	}
	lanes := inTurn(a.lanes)
	a.lanes = emptied(a.lanes)
	return lanes
}

// emptied returns an empty map in place of one. It is a new one, since to go through a map takes as
// long as it was large.
func emptied[K comparable](m map[K]bool) map[K]bool { return make(map[K]bool, min(len(m), 16)) }

// inTurn returns lanes in the order in which they are asked for.
func inTurn(lanes map[*laneState]bool) []*laneState {
	return slices.SortedFunc(maps.Keys(lanes), func(a, b *laneState) int { return laneOrder(a.lane, b.lane) })
}

// awakeAt is when to look at the lanes of a stream next, or zero.
func (c *Core) awakeAt(s *slot, now time.Time) time.Time {
	_, at := s.stream.awake.clock.First()
	for l := range s.stream.awake.lanes {
		at = earlier(at, c.laneAt(s, l, now))
	}
	return at
}

// laneAt is when something is due on a lane, or zero.
func (c *Core) laneAt(s *slot, l *laneState, now time.Time) time.Time {
	at := earlier(l.settle.deadline(), l.globs.deadline(), l.unansweredAt(c.config.patience()),
		c.judgeAt(l), l.silenceAt(), c.bareAt(s, l), c.faultAt(l))
	if len(l.unanswered.delivered) > 0 {
		at = earlier(at, toCome(c.refreshes.notBefore, now))
	}
	switch {
	case l.held, l.answered:
	case l.asked():
		at = earlier(at, toCome(l.askedAt.Add(trial), now))
	}
	return at
}

// inOrder returns the lanes in the order in which they are asked for: types that others
// refer to first, so that an answer is useful when it comes.
func (s *streamState) inOrder() []*laneState {
	if s.ordered == nil {
		s.ordered = slices.SortedFunc(maps.Values(s.lanes), func(a, b *laneState) int { return laneOrder(a.lane, b.lane) })
	}
	return s.ordered
}

func laneOrder(a, b fanout.Lane) int {
	return cmp.Or(a.Type.Rank()-b.Type.Rank(), cmp.Compare(a.Type, b.Type))
}
