package upstream

import (
	"maps"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/upstream/session"
)

// How a Client takes another configuration: on the goroutine that opens its streams, so that
// none is opened by half of it.

// change is a configuration that is to be put in force.
type change struct {
	config session.Config
	conns  []*Conn
	done   chan struct{}
}

// Reconfigure has the group go on with another configuration, and with one Conn for each of its
// entries; those that are the same as before keep their streams. What it returns is closed once no
// stream of the group uses a Conn that is not among them, or the group has ended. It does not wait.
func (c *Client) Reconfigure(config session.Config, conns []*Conn) (done <-chan struct{}) {
	ch := change{config, conns, make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		close(ch.done)
		return ch.done
	}
	c.changes = append(c.changes, ch)
	poke(c.wake)
	return ch.done
}

// reconfigure puts the changes in force that have come, under the Client's mutex.
func (c *Client) reconfigure(now time.Time) (taken []change) {
	taken, c.changes = c.changes, nil
	for _, ch := range taken {
		renewed := make([]bool, len(ch.conns))
		for i, conn := range ch.conns {
			renewed[i] = !slices.Contains(c.conns, conn)
		}
		c.core.Reconfigure(ch.config, renewed, now)
		c.conns = ch.conns
		maps.DeleteFunc(c.failed, func(conn *Conn, _ failures) bool { return !slices.Contains(ch.conns, conn) })
	}
	return taken
}

// join makes the group a member of the Conns that it uses from now on, and of no other ones.
func (c *Client) join(was, conns []*Conn) {
	for _, conn := range was {
		if !slices.Contains(conns, conn) {
			conn.quit(c)
		}
	}
	for _, conn := range conns {
		conn.join(c, func() { c.isBack(conn) })
	}
}

// finish lets go of those who wait for a change, when the Client has ended.
func (c *Client) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, ch := range c.changes {
		close(ch.done)
	}
	c.changes = nil
}
