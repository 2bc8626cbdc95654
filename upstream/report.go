package upstream

import (
	"fmt"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/logging"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// This file reports on a group's streams: in the log, in metrics, and through the admin API.

// report logs and counts an Effect and what it has done to the Hub, and starts health checks.
func (c *Client) report(e session.Effect, o session.Outcome, begins time.Time) {
	switch e := e.(type) {
	case session.Learned:
		c.follow(e, o.Applied, begins)
		c.tellApplied(e, o.Applied)
	case session.Elapsed:
		c.tellLapses(o.Lapses)
	case session.Availability:
		c.tellAvailability(e)
	case session.Resolution:
		c.tellVerdict(e)
	case session.CheckDue:
		c.check(e.Stream, e.Timeout)
	case session.Dropped:
		c.observer.UpstreamDropped(e.Reason)
	case session.Refusal:
		c.mu.Lock()
		c.refusals = append(c.refusals, e)
		c.mu.Unlock()
	case session.Notice:
		c.conn(e.Entry).tellNotice(e.Text)
	case session.Stopped:
		c.conn(e.Entry).tellStopped()
	case session.Switch:
		c.log.Debug("another control plane is put to use", "address", c.conns[e.To].endpoint.Name)
		c.conns[e.To].tellSwitch(c.conns[e.From], e.Why)
	case session.LeftOut:
		c.observer.UpstreamLeftOut(e.Lane.Type, e.Names)
		if e.First {
			c.log.Warn("the list of names that goes to the control plane in one request is full; the names that were asked for last are left out, and their clients get an error: raise upstream.max_request_bytes if the control plane takes longer requests, or let it speak Delta",
				"type", e.Lane.Type, "names", e.Names, "address", e.Entry)
		}
	case session.Silence:
		c.log.Warn("the control plane is alive but does not answer for a type that clients wait for: it may not know the node (see upstream.node, groups.key, groups.profile), want a token (upstream.headers), or have no resource of this type",
			"type", e.Lane.Type, "wildcard", e.Lane.Wildcard, "since", e.Since, "node", e.Node, "cluster", e.Cluster, "clients", e.Clients, "address", e.Entry)
	case session.Answered:
		c.log.Info("the control plane answers for a type that it had been silent about", "address", c.serving(), "type", e.Lane.Type, "wildcard", e.Lane.Wildcard)
	case session.Uncertain:
		c.log.Warn("the control plane announced resources in a form that cannot be used, and clients keep the ones that they have until it announces usable ones: see the fault in the NACK",
			"type", e.Lane.Type, "wildcard", e.Lane.Wildcard, "count", len(e.Names), "first", logging.First(e.Names), "any", e.Unreadable, "clients", e.Clients, "address", e.Entry)
	case session.Excess:
		c.log.Error("the control plane sends more resources of a type than the relay keeps: those that are there stay, and no others are taken in; raise upstream.max_set_bytes, or make the control plane send less",
			"type", e.Lane.Type, "wildcard", e.Lane.Wildcard, "bytes", e.Bytes, "max_set_bytes", e.Most, "address", e.Entry)
	}
}

// tellLapses logs and counts what has run out.
func (c *Client) tellLapses(lapses map[cache.TypeURL]fanout.Lapse) {
	for t, l := range lapses {
		if l.Expired > 0 {
			c.observer.ResourcesExpired(t, l.Expired)
			c.log.Warn("TTLs ran out because the control plane did not renew them", "address", c.serving(), "type", t, "resources", l.Expired)
		}
		if l.LetGo > 0 {
			c.log.Warn("removals that were held back are carried out: the time of cache.mass_removal_guard.hold is over", "type", t, "count", l.LetGo)
			c.event(events.RemovalsReleased, events.Warn, t, events.Event{Count: l.LetGo, Message: "the time of cache.mass_removal_guard.hold is over"})
		}
		c.tellReturned(t, l.Returned)
	}
}

// tellApplied logs and counts what the Hub has made of an update.
func (c *Client) tellApplied(e session.Learned, o fanout.Applied) {
	t, h := e.Lane.Type, o.Held
	if o.Silent > 0 {
		c.mu.Lock()
		c.missed.add(session.StreamID(e.Update.Stream), t, o.Silent, o.First, e.Update.At)
		c.mu.Unlock()
	}
	if o.Dropped > 0 {
		c.observer.UpstreamUnasked(t, o.Dropped)
	}
	if h.Count > 0 {
		c.log.Warn("the control plane has just come back and removes much at once; these removals are held back: see /resources, and POST /guard/release",
			"type", t, "wildcard", e.Lane.Wildcard, "count", h.Count, "total", h.Total, "until", h.Until)
		c.event(events.RemovalsHeld, events.Warn, t, events.Event{Count: h.Count, Names: h.First, Message: fmt.Sprintf("the control plane has just come back and removes %d of %d; they are held back until %s: see /resources, and POST /guard/release", h.Count, h.Total, h.Until.UTC().Format(time.RFC3339))})
	}
	c.tellReturned(t, h.Returned)
	if h.Confirmed > 0 {
		c.log.Warn("removals that were held back are carried out: the control plane has repeated them", "type", t, "wildcard", e.Lane.Wildcard, "count", h.Confirmed)
		c.event(events.RemovalsReleased, events.Warn, t, events.Event{Count: h.Confirmed, Message: "the control plane has repeated them"})
	}
}

// tellVerdict logs and counts that a type was convicted or acquitted.
func (c *Client) tellVerdict(e session.Resolution) {
	c.observer.UpstreamQuarantine(e.Type, e.Convicted)
	if e.Convicted {
		c.log.Warn("the control plane ends the stream when asked for a type; asking for it alone from now on", "address", c.serving(), "type", e.Type)
		c.event(events.TypeQuarantined, events.Warn, e.Type, events.Event{Message: "the control plane ends the stream when asked for the type; the relay asks for it alone from now on"})
		return
	}
	c.log.Info("a type that the control plane had refused is asked for with the others again", "address", c.serving(), "type", e.Type)
	c.event(events.TypeAcquitted, events.Info, e.Type, events.Event{Message: "the type is asked for with the others again"})
}

// tellAvailability logs that clients get an error. Why there is no answer was logged once for all groups and types.
func (c *Client) tellAvailability(e session.Availability) {
	switch {
	case e.Status == nil:
	case !c.core.Allowed(e.Lane.Type):
		c.log.Warn("clients ask for a type that is not among upstream.types; they are told so", "type", e.Lane.Type)
	default:
		c.log.Debug("clients that wait for this type are told that there is no answer", "type", e.Lane.Type, "err", e.Status.GetMessage())
	}
}

// tellReturned reports that held-back removals are forgotten.
func (c *Client) tellReturned(t cache.TypeURL, n int) {
	if n > 0 {
		c.log.Info("removals that were held back are forgotten: the control plane has the resources after all", "type", t, "count", n)
		c.event(events.RemovalsForgotten, events.Info, t, events.Event{Count: n, Message: "the control plane has the resources after all"})
	}
}

// tellMissing logs names that became missing.
func (c *Client) tellMissing() {
	c.mu.Lock()
	due := c.missed.due(time.Now(), c.core.Asks)
	c.mu.Unlock()
	for _, m := range due {
		c.log.Info("names are missing: the control plane is alive and has not answered them for timers.dne_timeout; see /resources", "address", c.serving(), "type", m.typ, "count", m.count, "first", m.first)
	}
}

// tellRefused reports claims that an entry refuses.
func (c *Client) tellRefused() {
	c.mu.Lock()
	refusals := c.refusals
	c.refusals = nil
	c.mu.Unlock()
	for _, r := range refusals {
		if c.owner.refused != nil {
			c.owner.refused(r)
		}
	}
}

// event publishes something about a type of the group.
func (c *Client) event(kind events.Kind, level events.Level, t cache.TypeURL, e events.Event) {
	if c.events == nil {
		return
	}
	e.Kind, e.Level, e.Type, e.Group, e.ControlPlane = kind, level, t, c.hub.Name(), c.serving()
	e.Subject = fmt.Sprintf("group %s %s", e.Group, t)
	c.events.Publish(e)
}

// conn returns the Conn of an entry, which has its name, or the first one if the entry has left the
// list since.
func (c *Client) conn(entry string) *Conn {
	i := slices.IndexFunc(c.conns, func(conn *Conn) bool { return conn.endpoint.Name == entry })
	return c.conns[max(i, 0)]
}

// serving is the name of the entry in use.
func (c *Client) serving() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conns[c.core.InUse()].endpoint.Name
}

// State describes the group's streams.
func (c *Client) State() session.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.State()
}

// Silent returns the types for which the control plane's silence was reported.
func (c *Client) Silent() []cache.TypeURL {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.Silent()
}
