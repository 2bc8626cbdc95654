package loadreport

import (
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

// Client adds the reports of one call to a Sum.
type Client struct {
	sum   *Sum
	bytes int    // of the Room, for what it has named first and for held
	held  []held // what it has in progress, as its last report says
}

// held is what a client has in progress at a place.
type held struct {
	at                    *place
	requests, connections uint64
}

// Join adds a client, which leaves in the end.
func (s *Sum) Join() *Client { return &Client{sum: s} }

// Report adds a report. may says which clusters the client may read; nil: all.
func (c *Client) Report(stats []*endpoint.ClusterStats, may func(cluster string) bool, now time.Time) {
	before := c.held
	c.held = make([]held, 0, len(before))
	for _, r := range stats {
		switch name := r.GetClusterName(); {
		case !c.sum.wants(name):
			c.sum.dropped(Unasked, 1)
		case may != nil && !may(name):
			c.sum.dropped(Forbidden, 1)
		default:
			c.sum.add(c, r, c.sum.begin(r, now))
		}
	}
	c.release(before)
}

// Leave takes what the client has in progress out of the sum (LRS-7). What it has counted stays.
func (c *Client) Leave() {
	c.release(c.held)
	c.held = nil
}

// hold notes what the client has in progress at a place.
func (c *Client) hold(at *place, requests, connections uint64) {
	if c == c.sum.back || requests|connections == 0 || !c.take(heldBytes) {
		return
	}
	h := held{at, min(requests, mostInProgress), min(connections, mostInProgress)}
	at.requests += h.requests
	at.connections += h.connections
	at.clients++
	c.held = append(c.held, h)
}

func (c *Client) release(all []held) {
	for _, h := range all {
		h.at.requests -= h.requests
		h.at.connections -= h.connections
		h.at.clients--
		c.give(heldBytes)
	}
}

// take takes room, if the client may have more and there is some.
func (c *Client) take(bytes int) bool {
	shares := 1 // of load that comes back
	if c != c.sum.back {
		shares = clientShare
	}
	if c.bytes+bytes > c.sum.room.most/shares || !c.sum.room.take(bytes) {
		c.sum.dropped(Full, 1)
		return false
	}
	c.bytes += bytes
	c.sum.bytes += bytes
	return true
}

func (c *Client) give(bytes int) {
	c.bytes -= bytes
	c.sum.give(bytes)
}
