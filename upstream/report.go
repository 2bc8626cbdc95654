package upstream

import (
	"fmt"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/internal/logging"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// This file reports on a group's streams: in the log, in metrics, and through the admin API.

// report logs and counts the outcome of an Effect.
func (c *Client) report(e session.Effect, o session.Outcome) {
	for t, l := range o.Lapses {
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
	if o.Silent > 0 {
		c.mu.Lock()
		c.missed.add(session.StreamID(e.Update.Stream), e.Lane.Type, o.Silent, o.First, e.Update.At)
		c.mu.Unlock()
	}
	if o.Dropped > 0 {
		c.observer.UpstreamUnasked(e.Lane.Type, o.Dropped)
	}
	if h := o.Held; h.Count > 0 {
		c.log.Warn("the control plane has just come back and removes much at once; these removals are held back: see /resources, and POST /guard/release",
			"type", e.Lane.Type, "wildcard", e.Lane.Wildcard, "count", h.Count, "total", h.Total, "until", h.Until)
		c.event(events.RemovalsHeld, events.Warn, e.Lane.Type, events.Event{Count: h.Count, Names: h.First, Message: fmt.Sprintf("the control plane has just come back and removes %d of %d; they are held back until %s: see /resources, and POST /guard/release", h.Count, h.Total, h.Until.UTC().Format(time.RFC3339))})
	}
	c.tellReturned(e.Lane.Type, o.Held.Returned)
	if h := o.Held; h.Confirmed > 0 {
		c.log.Warn("removals that were held back are carried out: the control plane has repeated them", "type", e.Lane.Type, "wildcard", e.Lane.Wildcard, "count", h.Confirmed)
		c.event(events.RemovalsReleased, events.Warn, e.Lane.Type, events.Event{Count: h.Confirmed, Message: "the control plane has repeated them"})
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
		if c.refused != nil {
			c.refused(r)
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

// observe logs and counts what an Effect says by itself, and starts health checks.
func (c *Client) observe(e session.Effect) {
	switch {
	case e.Check != 0:
		c.check(e.Check, e.Timeout)
	case e.Silence != nil && e.Silence.Over:
		c.log.Info("the control plane answers for a type that it had been silent about", "address", c.serving(), "type", e.Lane.Type, "wildcard", e.Lane.Wildcard)
	case e.Uncertain != nil:
		c.log.Warn("the control plane announced resources in a form that cannot be used, and clients keep the ones that they have until it announces usable ones: see the fault in the NACK",
			"type", e.Lane.Type, "wildcard", e.Lane.Wildcard, "count", len(e.Uncertain.Names), "first", logging.First(e.Uncertain.Names), "any", e.Uncertain.Hidden, "clients", e.Uncertain.Clients, "address", e.Entry)
	case e.Silence != nil:
		c.log.Warn("the control plane is alive but does not answer for a type that clients wait for: it may not know the node (see upstream.node, groups.key, groups.profile), want a token (upstream.headers), or have no resource of this type",
			"type", e.Lane.Type, "wildcard", e.Lane.Wildcard, "since", e.Silence.Since, "node", e.Silence.Node, "cluster", e.Silence.Cluster, "clients", e.Silence.Clients, "address", e.Entry)
	case e.Refused != nil:
		c.mu.Lock()
		c.refusals = append(c.refusals, *e.Refused)
		c.mu.Unlock()
	case e.LeftOut > 0:
		c.observer.UpstreamLeftOut(e.Lane.Type, e.LeftOut)
		if e.First {
			c.log.Warn("the list of names that goes to the control plane in one request is full; the names that were asked for last are left out, and their clients get an error: raise upstream.max_request_bytes if the control plane takes longer requests, or let it speak Delta",
				"type", e.Lane.Type, "names", e.LeftOut, "address", e.Entry)
		}
	case e.Excess != nil:
		c.log.Error("the control plane sends more resources of a type than the relay keeps: those that are there stay, and no others are taken in; raise upstream.max_set_bytes, or make the control plane send less",
			"type", e.Lane.Type, "wildcard", e.Lane.Wildcard, "bytes", e.Excess.Bytes, "max_set_bytes", e.Excess.Most, "address", e.Entry)
	case e.Notice != "":
		c.conn(e.Entry).tellNotice(e.Notice)
	case e.Stopped:
		c.conn(e.Entry).tellStopped()
	case e.Switch != nil:
		c.log.Debug("another control plane is put to use", "address", e.Entry)
		c.conns[e.Switch.To].tellSwitch(c.conns[e.Switch.From], e.Switch.Why)
	case e.Drop != "":
		c.observer.UpstreamDropped(e.Drop)
	case e.Conviction:
		c.observer.UpstreamQuarantine(e.Lane.Type, e.Suspect)
		if e.Suspect {
			c.log.Warn("the control plane ends the stream when asked for a type; asking for it alone from now on", "address", c.serving(), "type", e.Lane.Type)
			c.event(events.TypeQuarantined, events.Warn, e.Lane.Type, events.Event{Message: "the control plane ends the stream when asked for the type; the relay asks for it alone from now on"})
		} else {
			c.log.Info("a type that the control plane had refused is asked for with the others again", "address", c.serving(), "type", e.Lane.Type)
			c.event(events.TypeAcquitted, events.Info, e.Lane.Type, events.Event{Message: "the type is asked for with the others again"})
		}
	case e.Availability && e.Status != nil && !c.core.Allowed(e.Lane.Type):
		c.log.Warn("clients ask for a type that is not among upstream.types; they are told so", "type", e.Lane.Type)
	case e.Availability && e.Status != nil: // the reason was logged once for all groups and types
		c.log.Debug("clients that wait for this type are told that there is no answer", "type", e.Lane.Type, "err", e.Status.GetMessage())
	}
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
