package upstream

import (
	"slices"

	"github.com/xds-relay/xds-relay/internal/header"
)

// connections are the connections to one entry and their streams. It decides which connection
// takes a stream, which streams must move, and when a connection is closed (UP-1). A server may
// limit the streams of a connection, and most proxies do. gRPC does not show that limit, and lets
// a stream wait until there is room. So the relay learns the limit from a stream that has to
// wait. It leaves room for one more stream on each connection, for health checks.
//
// It is pure, without IO and time: what is on a connection, and on a seat, is for Conn.
type connections struct {
	// most there may be, and most streams of each, as configured.
	most, streams int
	// learnt is how many streams the server was found to allow; zero: not known. It
	// goes with the last connection: the next server may be another one.
	learnt int

	all []*connection // in the order in which they were opened
}

// connection is one of them.
type connection struct {
	seats   []*seat // in the order in which they were taken
	over    bool    // it takes no more
	channel *channel
}

// seat is a stream's place on a connection, or that of an attempt at one.
type seat struct {
	group any // whose it is
	on    *connection
	begun bool // it is a stream
	moved bool // it must go elsewhere

	headers  []header.Header // that the stream is opened with, to prove something by
	end      func()          // ends the stream
	answered bool
}

// room is how many streams a connection takes.
func (cs *connections) room() int {
	n := cs.streams
	if cs.learnt > 0 {
		n = min(n, cs.learnt)
	}
	return max(n-1, 1) // if need be, without room to ask
}

// take finds a place for one more stream of a group: where it has one already, or on the
// first connection that has room, or on a new one. nil: there is no room.
func (cs *connections) take(group any) *seat {
	var found *connection
	usable := 0
	for _, c := range cs.all {
		if c.over {
			continue
		}
		usable++
		if len(c.seats) >= cs.room() {
			continue
		}
		if found == nil || !found.has(group) && c.has(group) {
			found = c
		}
	}
	if found == nil {
		if usable >= cs.most {
			return nil
		}
		found = &connection{}
		cs.all = append(cs.all, found)
	}
	s := &seat{group: group, on: found}
	found.seats = append(found.seats, s)
	return s
}

func (c *connection) has(group any) bool {
	return slices.ContainsFunc(c.seats, func(s *seat) bool { return s.group == group })
}

// stuck says that the server lets no stream begin on a connection any more. The limit
// that this teaches holds for all connections: what is too much on them is to move,
// attempts before streams, the latest first. A connection on which nothing may begin at
// all teaches nothing, and is good for nothing.
func (cs *connections) stuck(c *connection) (move []*seat) {
	begun := 0
	for _, other := range c.seats {
		if other.begun {
			begun++
		}
	}
	if begun == 0 {
		c.over = true
		return c.move(len(c.seats))
	}
	cs.learnt = begun
	for _, c := range cs.all {
		if !c.over {
			move = append(move, c.move(len(c.seats)-cs.room())...)
		}
	}
	return move
}

// move picks the seats that are to go, so many with those that are going already.
func (c *connection) move(n int) (move []*seat) {
	for _, s := range c.seats {
		if s.moved {
			n--
		}
	}
	for _, begun := range []bool{false, true} {
		for _, s := range slices.Backward(c.seats) {
			if n > 0 && s.begun == begun && !s.moved {
				s.moved = true
				move = append(move, s)
				n--
			}
		}
	}
	return move
}

// leave says that a stream has ended, or an attempt at one. over: its connection has
// nothing left on it, and is to be closed.
func (cs *connections) leave(s *seat) (over bool) {
	s.on.seats = slices.DeleteFunc(s.on.seats, func(other *seat) bool { return other == s })
	return cs.drop(s.on)
}

// retire says that a connection takes no more streams: it failed, was lost or given up,
// or is being drained. over is as in leave.
func (cs *connections) retire(c *connection) (over bool) {
	c.over = true
	return cs.drop(c)
}

// drop forgets a connection that is over and empty.
func (cs *connections) drop(c *connection) bool {
	if !c.over || len(c.seats) > 0 {
		return false
	}
	cs.all = slices.DeleteFunc(cs.all, func(other *connection) bool { return other == c })
	if len(cs.all) == 0 {
		cs.learnt = 0
	}
	return true
}
