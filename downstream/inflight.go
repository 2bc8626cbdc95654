package downstream

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// inflight accounts for the memory of requests that clients have begun to send and that are not taken
// in yet (VALID-8). gRPC keeps the parts of a request until it is whole, and many streams can each be
// one byte short of that. At the bound, reading waits, and nobody is refused. It knows no clock, and its
// user has a lock.
//
// Connections may use up half of the bound together. Above that they wait, except for one at a time, to
// which the other half belongs: so requests go on to their ends one after the other, and the bound holds.
type inflight struct {
	bound int // bytes
	used  int

	holders map[*holder]bool // the connections that use something
	waiting []*holder        // in order
	waits   period           // in which some wait, if some do
	// going is the connection that goes on while the others wait, and goal the stream for whose request
	// it was chosen: among those that waited, the one with the least to come.
	going *holder
	goal  uint32
}

// holder is what one connection uses.
type holder struct {
	used    int
	parts   map[uint32]*part // by stream
	streams map[uint32]func(*session.End)

	at     uint32    // the stream whose bytes came last
	waits  bool      // it is among the waiting
	since  time.Time // when it began to wait
	pardon int       // bytes that it may read although it would have to wait
	wake   chan struct{}
	closed bool
}

// part is what a stream's request uses that is not taken in. It begins when a read ends within a request.
type part struct {
	header [5]byte // gRPC's, of the request in progress
	have   int     // bytes of it that have come
	left   int     // bytes of the request that come after it
	half   int     // bytes of memory for the request in progress
	whole  int     // bytes of memory for requests that are whole

	last  time.Time // when bytes came, or their connection could be read again
	from  time.Time // since when the client is measured, while others wait
	of    int       // the number of that period
	got   int       // bytes since then
	ended bool      // its stream has ended, and what still comes is thrown away
}

// period is one of the times in which connections wait.
type period struct {
	number int
	since  time.Time
}

// The bounds that have no setting.
const (
	// readFreely is what a connection may use without ever waiting, so that ACKs and other small requests
	// pass. It has room for the longest frame.
	readFreely = 20 << 10
	// A request in progress is ended that receives less than slowBytes in slowAfter while others wait, or
	// nothing for silentAfter.
	slowBytes   = 64 << 10
	slowAfter   = 10 * time.Second
	silentAfter = 30 * time.Second
	// pardonAfter is when a connection that waits may read one frame, so that gRPC's keepalive, which sees
	// only what was read, does not close it.
	pardonAfter = 15 * time.Second
	// partWeight is what a part takes itself.
	partWeight = 256
)

func newInflight(bound int) *inflight {
	return &inflight{bound: bound, holders: make(map[*holder]bool)}
}

func newHolder() *holder {
	return &holder{parts: make(map[uint32]*part), streams: make(map[uint32]func(*session.End)), wake: make(chan struct{}, 1)}
}

// weigh returns what gRPC takes for a frame beyond its bytes: small ones have an allocation each, and
// others a buffer of one of two sizes.
func weigh(frame int) int {
	const each = 64
	switch {
	case frame == 0: // it was weighed before
		return 0
	case frame <= 1<<10:
		return each
	case frame <= 4<<10:
		return each + 4<<10 - frame
	}
	return each + max(16<<10-frame, 0)
}

// wholeRequests reports whether b consists of whole requests.
func wholeRequests(b []byte) bool {
	for len(b) >= 5 {
		n := int64(binary.BigEndian.Uint32(b[1:]))
		if n > int64(len(b)-5) {
			return false
		}
		b = b[5+n:]
	}
	return len(b) == 0
}

// piece takes note of bytes that were read for a stream. frame is the length of a frame that begins, or 0.
func (a *inflight) piece(h *holder, stream uint32, frame int, b []byte, now time.Time) {
	if h.closed {
		return
	}
	p := h.parts[stream]
	if p == nil {
		if wholeRequests(b) {
			return
		}
		p = &part{of: a.waits.number, from: now}
		h.parts[stream] = p
		a.holders[h] = true
		a.add(h, partWeight)
	}
	p.last = now
	p.measure(a.waits)
	if p.ended {
		return
	}
	h.at = stream
	p.got += len(b)
	p.half += weigh(frame)
	a.add(h, weigh(frame))
	for len(b) > 0 {
		n := p.take(b)
		a.add(h, n)
		b = b[n:]
		if p.half == 0 {
			a.reached(h, stream)
		}
	}
}

// take takes what b has of the request in progress, and returns how much that is.
func (p *part) take(b []byte) int {
	n := 0
	if p.have < len(p.header) {
		n = copy(p.header[p.have:], b)
		p.have += n
		p.left = int(binary.BigEndian.Uint32(p.header[1:])) // which holds once all of it is there
	}
	if p.have == len(p.header) {
		m := min(p.left, len(b)-n)
		p.left -= m
		n += m
	}
	p.half += n
	if p.have == len(p.header) && p.left == 0 {
		p.whole, p.half, p.have = p.whole+p.half, 0, 0
	}
	return n
}

// reached is called when the request in progress of a stream is no more: another connection may go on.
func (a *inflight) reached(h *holder, stream uint32) {
	if a.going == h && a.goal == stream {
		a.going = nil
	}
}

func (a *inflight) add(h *holder, n int) {
	h.used += n
	a.used += n
}

// over takes note that the client sends nothing more on a stream. What is whole is still to be taken in.
func (a *inflight) over(h *holder, stream uint32) {
	if p := h.parts[stream]; p != nil {
		a.drop(h, stream, p.whole > 0 && !p.ended)
	}
}

// takenIn takes note that the requests of a stream that were whole are taken in.
func (a *inflight) takenIn(h *holder, stream uint32) {
	p := h.parts[stream]
	if p == nil || p.ended {
		return
	}
	whole := p.whole
	p.whole = 0
	a.add(h, -whole)
	if p.half == 0 {
		a.drop(h, stream, false)
	}
	a.goOn()
}

// drop forgets the request in progress of a stream, and the rest, unless what is whole stays.
func (a *inflight) drop(h *holder, stream uint32, whole bool) {
	p := h.parts[stream]
	a.add(h, -p.half)
	p.half, p.have = 0, 0
	if !whole {
		if !p.ended {
			a.add(h, -p.whole)
		}
		a.add(h, -partWeight)
		delete(h.parts, stream)
	}
	a.reached(h, stream)
	a.goOn()
}

// end makes what still comes of a stream count for nothing: gRPC throws it away.
func (a *inflight) end(h *holder, stream uint32) {
	p := h.parts[stream]
	a.add(h, -p.half-p.whole)
	p.half, p.whole, p.ended = 0, 0, true
	a.reached(h, stream)
	a.goOn()
}

// join takes note of a stream, and of how it is ended; leave that it has ended.
func (a *inflight) join(h *holder, stream uint32, end func(*session.End)) {
	if !h.closed {
		h.streams[stream] = end
	}
}

func (a *inflight) leave(h *holder, stream uint32) {
	delete(h.streams, stream)
	switch p := h.parts[stream]; {
	case p == nil, p.ended:
	case p.half > 0:
		a.end(h, stream)
	default:
		a.drop(h, stream, false)
	}
}

// close takes note that a connection is closed.
func (a *inflight) close(h *holder) {
	h.closed = true
	a.used -= h.used
	h.used = 0
	clear(h.parts)
	clear(h.streams)
	delete(a.holders, h)
	if a.going == h {
		a.going = nil
	}
	a.awaken(h)
	a.goOn()
}

// alone reports whether a connection uses more than it may, whatever the others do.
func (a *inflight) alone(h *holder) bool { return h.used > a.bound/2 }

// held reports whether the reading of a connection has to wait.
func (a *inflight) held(h *holder) bool {
	switch {
	case h.closed, h.used <= readFreely:
		return false
	case a.alone(h), a.used > a.bound:
		return true
	}
	return a.used > a.bound/2 && a.going != h
}

// excused reports whether it is the doing of others that nothing comes from a connection.
func (a *inflight) excused(h *holder) bool { return h.waits && !a.alone(h) && a.going != h }

// mayRead reports whether the connection may be read on after n bytes that came. Otherwise its user waits
// for wake, and asks again with n = 0.
func (a *inflight) mayRead(h *holder, n int, now time.Time) bool {
	if h.pardon -= n; h.pardon > 0 {
		return true
	}
	h.pardon = 0
	if a.held(h) && !h.waits {
		if len(a.waiting) == 0 {
			a.waits = period{a.waits.number + 1, now}
		}
		h.waits, h.since = true, now
		a.waiting = append(a.waiting, h)
		a.choose()
	}
	if a.held(h) {
		return false
	}
	a.awaken(h)
	return true
}

// awaken takes a connection from among the waiting.
func (a *inflight) awaken(h *holder) {
	if h.waits {
		h.waits = false
		a.waiting = slices.DeleteFunc(a.waiting, func(w *holder) bool { return w == h })
	}
	h.goOn()
}

// goOn wakes connections that may be read again, as many as there is room for.
func (a *inflight) goOn() {
	a.choose()
	room := a.bound/2 - a.used
	for _, h := range a.waiting {
		switch {
		case h == a.going:
			h.goOn()
		case a.alone(h):
		case room >= 0:
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

// choose lets one connection go on while the others wait, if none does.
func (a *inflight) choose() {
	if a.going != nil || a.used <= a.bound/2 {
		return
	}
	least := 0
	for _, h := range a.waiting {
		p := h.parts[h.at]
		if p == nil || p.ended || a.alone(h) {
			continue
		}
		if a.going == nil || p.left < least {
			a.going, a.goal, least = h, h.at, p.left
		}
	}
	if a.going != nil {
		a.going.goOn()
	}
}

// slow is a request in progress that is to be ended.
type slow struct {
	end    func(*session.End)
	silent bool // nothing came; otherwise too little while others waited
}

// tick looks for requests that do not go on, at most one of a connection each time, and lets connections
// that have waited for long read one frame.
func (a *inflight) tick(now time.Time) (found []slow) {
	if len(a.waiting) == 0 {
		a.waits = period{a.waits.number + 1, now}
	}
	for h := range a.holders {
		if stream, silent := h.slowest(now, a.waits, a.excused(h)); stream != 0 {
			if end := h.streams[stream]; end != nil {
				found = append(found, slow{end, silent})
			}
			a.giveUp(h, stream)
		}
		if h.waits && now.Sub(h.since) >= pardonAfter {
			h.pardon = readFreely
			a.awaken(h)
		}
		if len(h.parts) == 0 {
			delete(a.holders, h)
		}
	}
	return found
}

// giveUp lets go of a request that does not go on, and of the memory of its stream once that is silent.
func (a *inflight) giveUp(h *holder, stream uint32) {
	if h.parts[stream].ended {
		a.drop(h, stream, false)
	} else {
		a.end(h, stream)
	}
}

// slowest returns the stream whose request is to be ended, or 0: the one for which nothing has come for
// longest. waits is the period in which others wait, and excused says that this connection does.
func (h *holder) slowest(now time.Time, waits period, excused bool) (stream uint32, silent bool) {
	for id, p := range h.parts {
		p.measure(waits)
		if excused || p.have == 0 && h.streams[id] != nil { // it is for the relay to read on, or to take in what is there
			p.last, p.from, p.got = now, now, 0
		}
		mute := now.Sub(p.last) >= silentAfter
		if !mute && !p.drips(now) {
			continue
		}
		if stream == 0 || p.last.Before(h.parts[stream].last) {
			stream, silent = id, mute
		}
	}
	return stream, silent
}

// measure begins to measure the client when a period begins.
func (p *part) measure(waits period) {
	if p.of != waits.number {
		p.of, p.from, p.got = waits.number, waits.since, 0
	}
}

// drips reports whether too little has come while others waited.
func (p *part) drips(now time.Time) bool {
	if now.Sub(p.from) < slowAfter {
		return false
	}
	if p.got < slowBytes {
		return true
	}
	p.from, p.got = now, 0
	return false
}
