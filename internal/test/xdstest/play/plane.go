package play

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/internal/test/xdstest"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// controlPlane is one control plane, as the relay's edge sees it.
type controlPlane struct {
	down      bool // it cannot be reached
	hung      bool // it is stopped: its connection stays, and what is said to it waits
	connected bool // there is a connection to it; streams come and go on it

	// While it hangs: what it has not heard, and the attempts at a stream that wait for
	// a new connection, which are given up together.
	unheard []xdstest.Event
	pending []*stream
	giveUp  time.Time
	// checks are what it was asked, and has not answered (MISS-3).
	checks []check
}

// check asks whether anybody is at the other end of a stream's connection.
type check struct {
	group      *group
	stream     session.StreamID
	begun, end time.Time
}

// connectTimeout is upstream.ConnectTimeout.
const connectTimeout = 10 * time.Second

// errGivenUp is how streams end on a connection that the relay has given up.
var errGivenUp = status.Error(codes.Unavailable, "error reading from server: use of closed network connection")

var errNoPreface = status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: context deadline exceeded"`)

// plane is the control plane that an actor belongs to.
func (p *player) plane(actor string) *controlPlane {
	name := ""
	if strings.HasPrefix(actor, "b.") {
		name = "b"
	}
	if p.planes[name] == nil {
		p.planes[name] = &controlPlane{}
	}
	return p.planes[name]
}

// check asks whether anybody is at the other end of a stream's connection.
func (p *player) check(g *group, id session.StreamID, timeout time.Duration) {
	i := slices.IndexFunc(p.streams, func(s *stream) bool { return s.group == g && s.id == id })
	if i < 0 {
		return
	}
	c := check{group: g, stream: id, begun: p.now, end: p.now.Add(timeout)}
	if plane := p.plane(p.streams[i].actor); plane.hung {
		plane.checks = append(plane.checks, c)
		return
	}
	p.checked(c, session.There)
}

func (p *player) checked(c check, v session.CheckResult) {
	p.step(c.group, func() { c.group.core.Checked(c.stream, session.Check{Begun: c.begun, Result: v}, p.now) })
}

// giveConnectionsUp ends the connections on which a check was not answered in time, and
// nothing else came.
func (p *player) giveConnectionsUp() (busy bool) {
	for _, plane := range p.planes {
		for len(plane.checks) > 0 && !plane.checks[0].end.After(p.now) {
			c := plane.checks[0]
			plane.checks = plane.checks[1:]
			busy, plane.connected = true, false
			p.checked(c, session.Silent)
			for _, s := range slices.Clone(p.streams) {
				if p.plane(s.actor) == plane && slices.Contains(p.streams, s) {
					plane.unheard = append(plane.unheard, xdstest.Event{Actor: s.actor, Text: "closed"})
					p.ended(s, errGivenUp)
				}
			}
		}
	}
	return busy
}

// hearUp is what a control plane hears on one of its streams, now or when it wakes.
func (p *player) hearUp(s *stream, text string) {
	if plane := p.plane(s.actor); plane.hung {
		plane.unheard = append(plane.unheard, xdstest.Event{Actor: s.actor, Text: text})
		return
	}
	p.hear(s.actor, text)
}

// setDown kills the control plane and its connection.
func (p *player) setDown(actor string) {
	plane := p.plane(actor)
	waiting := plane.pending
	*plane = controlPlane{down: true}
	for _, s := range slices.Concat(waiting, p.streams) {
		if p.plane(s.actor) == plane {
			p.ended(s, errLost)
		}
	}
}

// wake lets it go on.
func (p *player) wake(actor string) {
	plane := p.plane(actor)
	waiting := plane.pending
	p.events = append(p.events, plane.unheard...)
	checks := plane.checks
	plane.hung, plane.unheard, plane.pending, plane.checks = false, nil, nil, nil
	for _, c := range checks {
		p.checked(c, session.There)
	}
	for _, s := range waiting {
		p.connect(s)
	}
}

// connect opens a stream, if the control plane takes it. On a connection that there is
// a stream begins without a word from the other side.
func (p *player) connect(s *stream) {
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
func (p *player) giveUps() (busy bool) {
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
func (p *player) attempts() (at []time.Time) {
	for _, plane := range p.planes {
		if len(plane.pending) > 0 {
			at = append(at, plane.giveUp)
		}
		if len(plane.checks) > 0 {
			at = append(at, plane.checks[0].end)
		}
	}
	return at
}

// forgetPending drops attempts that the relay has given up, unheard.
func (p *player) forgetPending(which func(*stream) bool) {
	for _, plane := range p.planes {
		plane.pending = slices.DeleteFunc(plane.pending, which)
	}
}
