package xdstest_test

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/internal/xdstest"
)

// purePlane is one control plane, as the relay's edge sees it.
type purePlane struct {
	down      bool // it cannot be reached
	hung      bool // it is stopped: its connection stays, and what is said to it waits
	connected bool // there is a connection to it; streams come and go on it

	// While it hangs: what it has not heard, and the attempts at a stream that wait for
	// a new connection, which are given up together.
	unheard []xdstest.Event
	pending []*pureStream
	giveUp  time.Time
}

// connectTimeout is how long an attempt to connect may take (upstream/conn.go).
const connectTimeout = 10 * time.Second

var errNoPreface = status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: context deadline exceeded"`)

// plane is the control plane that an actor belongs to.
func (p *pure) plane(actor string) *purePlane {
	name := ""
	if strings.HasPrefix(actor, "b.") {
		name = "b"
	}
	if p.planes[name] == nil {
		p.planes[name] = &purePlane{}
	}
	return p.planes[name]
}

// alive reports whether the control plane of a stream answers a check of its
// connection (MISS-3).
func (p *pure) alive(s *pureStream) bool { return !p.plane(s.actor).hung }

// hearUp is what a control plane hears on one of its streams, now or when it wakes.
func (p *pure) hearUp(s *pureStream, text string) {
	if plane := p.plane(s.actor); plane.hung {
		plane.unheard = append(plane.unheard, xdstest.Event{Actor: s.actor, Text: text})
		return
	}
	p.hear(s.actor, text)
}

// setDown kills the control plane and its connection.
func (p *pure) setDown(actor string) {
	plane := p.plane(actor)
	waiting := plane.pending
	*plane = purePlane{down: true}
	for _, s := range slices.Concat(waiting, p.streams) {
		if p.plane(s.actor) == plane {
			p.ended(s, errLost)
		}
	}
}

// wake lets it go on.
func (p *pure) wake(actor string) {
	plane := p.plane(actor)
	waiting := plane.pending
	p.events = append(p.events, plane.unheard...)
	plane.hung, plane.unheard, plane.pending = false, nil, nil
	for _, s := range waiting {
		p.connect(s)
	}
}

// connect opens a stream, if the control plane takes it. On a connection that there is
// a stream begins without a word from the other side.
func (p *pure) connect(s *pureStream) {
	plane := p.plane(s.actor)
	switch {
	case plane.down:
		p.ended(s, errRefused)
	case plane.hung && !plane.connected:
		if len(plane.pending) == 0 {
			plane.giveUp = p.now.Add(connectTimeout)
		}
		plane.pending = append(plane.pending, s)
	default:
		plane.connected = true
		p.opened(s)
	}
}

// giveUps ends the attempts to connect that have taken too long.
func (p *pure) giveUps() (busy bool) {
	for _, plane := range p.planes {
		if len(plane.pending) > 0 && !plane.giveUp.After(p.now) {
			waiting := plane.pending
			plane.pending = nil
			for _, s := range waiting {
				p.ended(s, errNoPreface)
			}
			busy = true
		}
	}
	return busy
}

// attempts are when attempts to connect are given up.
func (p *pure) attempts() (at []time.Time) {
	for _, plane := range p.planes {
		if len(plane.pending) > 0 {
			at = append(at, plane.giveUp)
		}
	}
	return at
}

// forgetPending drops attempts that the relay has given up, unheard.
func (p *pure) forgetPending(which func(*pureStream) bool) {
	for _, plane := range p.planes {
		plane.pending = slices.DeleteFunc(plane.pending, which)
	}
}
