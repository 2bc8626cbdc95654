package twin

import (
	"slices"
	"time"
)

// hold is what the Checker knows of a client's clusters that await their ACK (ORDER-3).
type hold struct {
	changing []string  // nonces of responses that bring something new, and await a verdict
	since    time.Time // some have, without a moment in which none did
	settled  bool      // none has any more, and the relay may not have looked at the client since
	returned time.Time // the client came with versions, and has judged nothing yet
}

// judged settles a response, and those before it; the oldest is of since. Even one that
// brought nothing new kept back what came after it, for which others may have waited.
func (h *hold) judged(settled []string, since time.Time) {
	h.returned = time.Time{}
	was := len(h.changing)
	if was == 0 && !h.settled {
		h.since = since
	}
	h.changing = slices.DeleteFunc(h.changing, func(nonce string) bool { return slices.Contains(settled, nonce) })
	h.settled = h.settled || len(h.changing) == 0
}

// rested: the relay has nothing left to do for a client. If no clusters await their ACK nothing waits
// for them, and the next wait is another one.
func (c *Checker) rested(id int) {
	if cl := c.clients[id]; cl != nil {
		cl.hold.settled = false
	}
}

// clusters notes a response that brings new clusters, while ACKs are owed since then, or
// none. One that was kept back by the last ACK goes on with the same wait, and the first one
// with that for what becomes of what the client came with.
func (h *hold) clusters(nonce string, since time.Time) {
	if !h.returned.IsZero() {
		since = h.returned
	}
	if len(h.changing) == 0 && !h.settled {
		h.since = since
	}
	h.changing = append(h.changing, nonce)
}

// lasts: what refers to clusters has to wait. It may have begun to when they did.
func (h *hold) lasts(now time.Time) bool {
	return len(h.changing) > 0 && now.Before(h.since.Add(warmingHold))
}

// ranOut: something may have waited in vain, so that clusters do not wait for an ACK that
// is owed since then.
func (h *hold) ranOut(since, now time.Time) bool {
	return len(h.changing) > 0 && !now.Before(h.since.Add(warmingHold)) || !now.Before(since.Add(warmingHold))
}

// isNews: the client has another version of a resource, or none. Of what refers to
// clusters, what it asks for by name and has nothing of is an answer, and none of this.
func (c *Checker) isNews(k kind, t *topic, name string, aliases []string, body []byte) bool {
	has, ok := t.holds[name]
	if k.name == "LDS" && (!ok && t.interest.Named(name, aliases) || t.leadsFirst(name, aliases)) {
		return false
	}
	return has.label != c.bodies[string(body)].label
}

// leadsFirst: a name that the client asks for leads to a resource, and to nothing that it has.
func (t *topic) leadsFirst(name string, aliases []string) bool {
	return slices.ContainsFunc(append(slices.Clone(aliases), name), func(asked string) bool {
		return t.interest.Names[asked] && !slices.ContainsFunc(append(aliased(asked), asked), func(other string) bool {
			h, has := t.holds[other]
			return has && answers(other, h.aliases, asked)
		})
	})
}

// heldBack judges a response that may bring something new (ORDER-3).
func (c *Checker) heldBack(who string, cl *clientState, k kind, t *topic, nonce string, news, answer bool) {
	switch {
	case news && k.name == "CDS":
		since := c.now
		if len(t.unacked) > 0 {
			since = t.since
		}
		cl.hold.clusters(nonce, since)
	case news && k.name == "LDS" && !answer && cl.hold.lasts(c.now):
		c.fail("ORDER-3", "%s: a change is sent while clusters await their ACK", who)
	}
}
