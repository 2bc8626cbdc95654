package downstream

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// inflight accounts for the memory of requests that clients have begun to send and that are not taken
// in yet (VALID-8). gRPC keeps the parts of a request until it is whole, and many streams can each be
// one byte short of that. When there is no room, reading waits, and nobody is refused. It knows no clock,
// and its user has a lock.
//
// One half of the bound belongs to one connection, which has its turn. The rest of the connections share
// the other half. A connection that finds no room there waits for its turn, after those that have waited for
// longer. So requests go on to their ends one after the other, and the bound holds.
type inflight struct {
	bound int // bytes
	used  int

	holders map[*holder]bool // the connections that use something
	waiting []*holder        // in the order of their turns
	turn    turn
}

// turn is one connection's. It is over when the connection uses no more than before, since then what it
// was to send is taken in, or ended.
type turn struct {
	of    *holder   // nil: nobody's
	had   int       // bytes that it used before
	until time.Time // when its requests are ended; zero until the next tick
}

// holder is what one connection uses.
type holder struct {
	name    string // whose connection it is: turns go round between names
	used    int
	parts   map[uint32]*part // by stream
	streams map[uint32]func(*session.End)
	through map[uint32]bool // those that are calls which go through
	loose   atomic.Int64    // bytes of small requests that came whole and are not taken in

	at     uint32    // the stream whose bytes came last
	within bool      // a frame has begun and is not complete
	waits  bool      // it is among the waiting
	since  time.Time // when it began to wait, or was pardoned
	pardon bool      // it may read a few bytes although it has to wait
	wake   chan struct{}
	closed bool
}

// The bounds that have no setting.
const (
	// readFreely is what a connection may use without waiting while there is room for small requests. It has
	// room for the longest frame. Without room it may use readAlways, and complete a frame.
	readFreely = 20 << 10
	readAlways = 1 << 10
	// looseMost is for how many bytes of small requests a connection is not looked at, if they come whole.
	looseMost = 2 << 10
	// A request in progress is ended that receives less than slowBytes in slowAfter while others wait, or
	// nothing for silentAfter. A turn lasts as long as slowAfter, and a second more for each slowTurn bytes
	// of the request that are to come.
	slowBytes   = 64 << 10
	slowAfter   = 10 * time.Second
	slowTurn    = 1 << 20
	silentAfter = 30 * time.Second
	// pardonAfter is when a connection that waits may read pardonBytes, so that gRPC's keepalive, which sees
	// only what was read, does not close it.
	pardonAfter = 15 * time.Second
	pardonBytes = 64
	// partWeight is what a part takes itself.
	partWeight = 256
)

func newInflight(bound int) *inflight {
	return &inflight{bound: bound, holders: make(map[*holder]bool)}
}

func (h *holder) init() {
	h.streams, h.wake = make(map[uint32]func(*session.End), 1), make(chan struct{}, 1)
}

// passes reports whether b, where a request begins, needs no part: the few small requests that a client
// usually sends at once. Its user needs no lock.
func (h *holder) passes(b []byte) bool {
	if h.loose.Load()+int64(len(b)) > looseMost || !wholeRequests(b) {
		return false
	}
	h.loose.Add(int64(len(b)))
	return true
}

// piece takes note of bytes that were read for a stream. frame is the length of a frame that begins, or 0.
func (a *inflight) piece(h *holder, stream uint32, frame int, b []byte, now time.Time) {
	if h.closed {
		return
	}
	p := h.parts[stream]
	if p == nil {
		if h.passes(b) {
			return
		}
		p = &part{from: now}
		if h.parts == nil {
			h.parts = make(map[uint32]*part)
		}
		h.parts[stream] = p
		a.holders[h] = true
		a.add(h, partWeight)
	}
	p.last = now
	if p.ended {
		return
	}
	if h.streams[stream] == nil {
		if p.early += len(b); p.early > window { // gRPC knows no such stream, and throws it away
			a.end(h, stream)
			return
		}
	}
	h.at = stream
	p.got += len(b)
	was := p.half + p.whole
	p.half += weigh(frame)
	for len(b) > 0 {
		b = b[p.take(b):]
	}
	if h.through[stream] {
		p.half, p.whole = max(p.length-window, 0), 0
	}
	if now := p.half + p.whole; now >= was {
		a.add(h, now-was)
	} else {
		a.free(h, was-now)
	}
}

func (a *inflight) add(h *holder, n int) {
	h.used += n
	a.used += n
}

// free takes note that n bytes are used no more. Others may go on.
func (a *inflight) free(h *holder, n int) {
	a.add(h, -n)
	if h.used <= a.turn.had {
		a.pass(h)
	}
	a.goOn()
}

// pass ends the turn of a connection, if it has it.
func (a *inflight) pass(h *holder) {
	if a.turn.of == h {
		a.turn = turn{}
	}
}

// over takes note that the client sends nothing more on a stream. What is whole is still to be taken in, if
// there is somebody to do it.
func (a *inflight) over(h *holder, stream uint32) {
	p := h.parts[stream]
	switch {
	case p == nil:
	case p.ended, p.came == 0, h.streams[stream] == nil:
		a.drop(h, stream)
	default:
		half := p.half
		p.half, p.have, p.length = 0, 0, 0
		a.free(h, half)
	}
}

// takenIn takes note that a request of n bytes of a stream that was whole is taken in, gRPC's header
// included. What its frames took is known for all together only.
func (a *inflight) takenIn(h *holder, stream uint32, n int) {
	p := h.parts[stream]
	if p != nil && p.came > 0 {
		m := min(n, p.came)
		weight := int(int64(p.whole) * int64(m) / int64(p.came))
		p.came -= m
		p.whole -= weight
		n -= m
		if p.came == 0 && p.length == 0 && !p.ended {
			a.add(h, -weight)
			a.drop(h, stream)
		} else {
			a.free(h, weight)
		}
	}
	h.passed(n)
}

// passed takes note that n bytes which needed no part are taken in. What was compressed is longer now.
func (h *holder) passed(n int) {
	for {
		was := h.loose.Load()
		if h.loose.CompareAndSwap(was, max(was-int64(n), 0)) {
			return
		}
	}
}

// drop forgets the part of a stream.
func (a *inflight) drop(h *holder, stream uint32) {
	p := h.parts[stream]
	delete(h.parts, stream)
	a.free(h, partWeight+p.half+p.whole)
}

// end makes what still comes of a stream count for nothing: gRPC throws it away.
func (a *inflight) end(h *holder, stream uint32) {
	p := h.parts[stream]
	was := p.half + p.whole
	p.half, p.whole, p.came, p.ended = 0, 0, 0, true
	a.free(h, was)
}

// join takes note of a stream, and of how it is ended; leave that it has ended.
func (a *inflight) join(h *holder, stream uint32, end func(*session.End)) {
	if !h.closed {
		h.streams[stream] = end
	}
}

// goesThrough says that a stream's messages count only as far as they are longer than its window. Such a call may have to
// wait for the control plane, and its connection is read on meanwhile, for the sake of its other streams; what then comes
// fits into the window.
func (a *inflight) goesThrough(h *holder, stream uint32) {
	if h.through == nil {
		h.through = make(map[uint32]bool)
	}
	h.through[stream] = true
}

func (a *inflight) leave(h *holder, stream uint32) {
	delete(h.streams, stream)
	delete(h.through, stream)
	switch p := h.parts[stream]; {
	case p == nil, p.ended:
	case p.length > 0:
		a.end(h, stream)
	default:
		a.drop(h, stream)
	}
}

// close takes note that a connection is closed.
func (a *inflight) close(h *holder) {
	h.closed = true
	clear(h.parts)
	clear(h.streams)
	delete(a.holders, h)
	a.readOn(h)
	h.goOn()
	a.free(h, h.used)
}

// alone reports whether a connection uses more than it may, whatever the others do.
func (a *inflight) alone(h *holder) bool { return h.used > a.bound/2 }

// rest is what the connections use whose turn it is not.
func (a *inflight) rest() int {
	if a.turn.of == nil {
		return a.used
	}
	return a.used - a.turn.of.used
}

// held reports whether the reading of a connection has to wait. Of the half for all, large requests leave
// a quarter to small ones.
func (a *inflight) held(h *holder) bool {
	switch half := a.bound / 2; {
	case h.closed, h.used <= readAlways:
		return false
	case a.alone(h):
		return true
	case a.turn.of == h:
		return false
	case h.used <= readFreely:
		return a.rest() > half && !h.within
	default:
		return a.rest() > half/4*3
	}
}

// mayRead reports whether the connection may be read on. Otherwise its user waits for wake, and asks again.
// After a pardon it may read pardonBytes.
func (a *inflight) mayRead(h *holder, now time.Time) (may, pardon bool) {
	if a.held(h) && !h.waits {
		h.waits, h.since = true, now
		a.waiting = append(a.waiting, h)
		a.choose()
	}
	if a.held(h) {
		pardon, h.pardon = h.pardon, false
		return pardon, pardon
	}
	a.readOn(h)
	return true, false
}

// readOn takes a connection from among the waiting.
func (a *inflight) readOn(h *holder) {
	h.pardon = false
	if h.waits {
		h.waits = false
		a.waiting = slices.DeleteFunc(a.waiting, func(w *holder) bool { return w == h })
	}
}

// goOn wakes connections that may be read again, as many as there is room for; those for which there is
// more are woken by the next tick.
func (a *inflight) goOn() {
	a.choose()
	room := a.bound/2 - a.rest()
	for _, h := range a.waiting {
		if room < 0 {
			return
		}
		if !a.held(h) {
			h.goOn()
			room -= readFreely
		}
	}
}

func (h *holder) goOn() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// choose gives the turn to the next connection if it is nobody's. All others of the same name come after
// the other names.
func (a *inflight) choose() {
	if a.turn.of != nil {
		return
	}
	i := slices.IndexFunc(a.waiting, func(h *holder) bool { return !a.alone(h) })
	if i < 0 {
		return
	}
	next := a.waiting[i]
	a.turn = turn{of: next, had: next.used}
	slices.SortStableFunc(a.waiting, func(x, y *holder) int {
		return cmp.Compare(rank(x, next), rank(y, next))
	})
	next.goOn()
}

// rank is 0 for those of other names than that of the one whose turn it is.
func rank(h, next *holder) int {
	if h.name == next.name {
		return 1
	}
	return 0
}

// slow is a request in progress that is to be ended.
type slow struct {
	end func(*session.End)
	why lateness
}

// lateness is why.
type lateness int

const (
	silent   lateness = iota // nothing came
	dripping                 // too little came while others waited
	turnOver                 // it was not complete at the end of its turn
)

// tick looks for requests that do not go on, and lets connections that have waited for long read a few bytes.
func (a *inflight) tick(now time.Time) (found []slow) {
	late := a.late(now)
	for h := range a.holders {
		if h == late {
			found = append(found, a.giveUp(h, h.all(), turnOver)...)
			a.pass(h)
		} else {
			found = append(found, a.judge(h, now)...)
		}
		if h.waits && now.Sub(h.since) >= pardonAfter {
			h.since, h.pardon = now, true
			h.goOn()
		}
		if len(h.parts) == 0 {
			delete(a.holders, h)
		}
	}
	a.goOn()
	return found
}

// late returns the connection whose turn has lasted too long, or nil. A turn lasts while nobody else waits.
func (a *inflight) late(now time.Time) *holder {
	h := a.turn.of
	if h == nil {
		return nil
	}
	others := slices.ContainsFunc(a.waiting, func(w *holder) bool { return w != h })
	if others && !a.turn.until.IsZero() {
		if now.Before(a.turn.until) {
			return nil
		}
		return h
	}
	left := 0
	if p := h.parts[h.at]; p != nil {
		left = p.left / slowTurn
	}
	a.turn.until = now.Add(slowAfter + time.Duration(left)*time.Second)
	return nil
}

// judge ends the requests of a connection that do not go on. Of a connection that uses more than it may, it
// ends only as many as have to go, since that one waits for itself.
func (a *inflight) judge(h *holder, now time.Time) (found []slow) {
	alone := a.alone(h)
	excused := h.waits && !alone                              // it is the doing of others that nothing comes
	calm := len(a.waiting) == 0 || a.turn.of == h && !h.waits // nobody waits, or its turn is measured
	for _, id := range h.all() {
		p := h.parts[id]
		idle := p.have == 0 || h.through[id] && p.half == 0
		ours := excused || idle && h.streams[id] != nil // it is for the relay to read on, or to take in what is there
		if ours {
			p.last = now
		}
		if ours || calm {
			p.from, p.got = now, 0
		}
		why := dripping
		switch {
		case now.Sub(p.last) >= silentAfter:
			why = silent
		case !p.drips(now):
			continue
		}
		found = append(found, a.giveUp(h, []uint32{id}, why)...)
		if alone && !a.alone(h) {
			break
		}
	}
	return found
}

// all returns the streams that have a part, first the one for which nothing has come for longest.
func (h *holder) all() []uint32 {
	ids := make([]uint32, 0, len(h.parts))
	for id := range h.parts {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(x, y uint32) int { return h.parts[x].last.Compare(h.parts[y].last) })
	return ids
}

// giveUp lets go of requests that do not go on, and of the memory of a stream that was ended before.
func (a *inflight) giveUp(h *holder, streams []uint32, why lateness) (found []slow) {
	for _, id := range streams {
		if h.parts[id].ended {
			a.drop(h, id)
			continue
		}
		if end := h.streams[id]; end != nil {
			found = append(found, slow{end, why})
		}
		a.end(h, id)
	}
	return found
}
