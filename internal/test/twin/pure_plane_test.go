package twin

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/upstream"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// purePlane is a control plane as the relay's edge sees it.
type purePlane struct {
	down      bool
	hung      bool
	connected bool // there is a connection, on which streams come and go

	// pending are the attempts at a stream that wait for a new connection to one that
	// hangs. They are given up together.
	pending []session.Open
	giveUp  time.Time
	// checks are what it was asked, and has not answered (MISS-3).
	checks []pureCheck
}

// pureCheck asks whether anybody is at the other end of a stream's connection.
type pureCheck struct {
	stream     session.StreamID
	begun, end time.Time
}

// connectTimeout is upstream.ConnectTimeout.
const connectTimeout = 10 * time.Second

var errNoPreface = status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: context deadline exceeded"`)

// alive reports whether a check of a stream's connection is answered (MISS-3).
func (r *pureRelay) alive(id session.StreamID) bool { return !r.planes[r.planeOf[id]].hung }

// check asks whether anybody is at the other end of a stream's connection.
func (r *pureRelay) check(id session.StreamID, timeout time.Duration) {
	k := pureCheck{id, r.now, r.now.Add(timeout)}
	if !r.alive(id) {
		p := r.planes[r.planeOf[id]]
		p.checks = append(p.checks, k)
		return
	}
	r.checked(k, session.There)
}

func (r *pureRelay) checked(k pureCheck, v session.CheckResult) {
	r.owed = true
	r.step(func() { r.core.Checked(k.stream, session.Check{Begun: k.begun, Result: v}, r.now) })
}

// giveConnectionsUp ends the connections on which a check was not answered in time, and
// nothing else came.
func (r *pureRelay) giveConnectionsUp() (busy bool) {
	for plane, p := range r.planes {
		for len(p.checks) > 0 && !p.checks[0].end.After(r.now) {
			k := p.checks[0]
			p.checks, p.connected = p.checks[1:], false
			r.checked(k, session.Silent)
			for _, id := range slices.Clone(r.streams) {
				if r.planeOf[id] == plane && slices.Contains(r.streams, id) {
					r.End(int(id), 0)
				}
			}
			busy = true
		}
	}
	return busy
}

func (r *pureRelay) Down(plane int, down bool) {
	p := r.planes[plane]
	if !down {
		p.down = false
		return
	}
	waiting := p.pending
	*p = purePlane{down: true}
	for _, o := range waiting {
		r.fail(o, endings[0])
	}
	for _, id := range slices.Clone(r.streams) {
		if r.planeOf[id] == plane {
			r.End(int(id), 0)
		}
	}
}

func (r *pureRelay) Hang(plane int, hung bool) {
	p := r.planes[plane]
	p.hung = hung
	if !hung {
		waiting, checks := p.pending, p.checks
		p.pending, p.checks = nil, nil
		for _, k := range checks {
			r.checked(k, session.There)
		}
		for _, o := range waiting {
			r.owed = true
			r.connect(o)
		}
	}
}

// connect opens a stream, if the control plane takes it. On a connection that there is a
// stream begins without a word from the other side.
func (r *pureRelay) connect(o session.Open) {
	p := r.planes[o.Entry]
	switch {
	case p.down:
		r.fail(o, endings[0])
	case p.hung && !p.connected:
		if len(p.pending) == 0 {
			p.giveUp = r.now.Add(connectTimeout)
		}
		p.pending = append(p.pending, o)
	case r.settings.SotW != "" && !o.SotW:
		r.step(func() { r.core.Opened(o.ID, r.now) })
		r.fail(o, unimplemented)
	default:
		p.connected = true
		r.streams = append(r.streams, o.ID)
		r.planeOf[o.ID] = o.Entry
		r.game.StreamOpened(int(o.ID), o.Entry, o.Role == session.Probe, o.SotW, r.now)
		r.step(func() { r.core.Opened(o.ID, r.now) })
	}
}

// fail ends an attempt.
func (r *pureRelay) fail(o session.Open, err error) {
	end, _ := upstream.Ending(err)
	r.owed = true
	r.step(func() { r.core.Ended(o.ID, end, r.now) })
}

// giveUps ends the attempts to connect that have taken too long.
func (r *pureRelay) giveUps() (busy bool) {
	for _, p := range r.planes {
		if len(p.pending) > 0 && !p.giveUp.After(r.now) {
			waiting := p.pending
			p.pending = nil
			for _, o := range waiting {
				r.fail(o, errNoPreface)
			}
			busy = true
		}
	}
	return busy
}

// attempts are when attempts to connect are given up.
func (r *pureRelay) attempts() (at []time.Time) {
	for _, p := range r.planes {
		if len(p.pending) > 0 {
			at = append(at, p.giveUp)
		}
		if len(p.checks) > 0 {
			at = append(at, p.checks[0].end)
		}
	}
	return at
}
