package twin

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// hold is what the Checker knows of a client's clusters that await their ACK (ORDER-3).
type hold struct {
	changing []string  // nonces of responses that bring something new, and await a verdict
	since    time.Time // since when ACKs of clusters are owed, without a moment of rest in which none was
	settled  bool      // changing is empty, and the relay may not have looked at the client since
	returned time.Time // when the client came with versions; zero once it has judged a response
	awaiting time.Time // since when a listener may wait because it is not known what the client's clusters have become
	hurried  time.Time // when a change went that did not wait, since the stream is to end (ERR-7)
}

// judged notes a verdict on a response, and on those before it; the oldest is of since. Even a response
// that brought nothing new held back what came after it, for which others may have waited.
func (h *hold) judged(settled []string, since time.Time) {
	h.returned = time.Time{}
	was := len(h.changing)
	if was == 0 && !h.settled {
		h.since = since
	}
	h.changing = slices.DeleteFunc(h.changing, func(nonce string) bool { return slices.Contains(settled, nonce) })
	h.settled = h.settled || len(h.changing) == 0
}

// rested notes that the relay has nothing left to do for a client. If no clusters await their ACK,
// nothing waits for them, and the next wait is a new one.
func (c *Checker) rested(id int) {
	if cl := c.clients[id]; cl != nil && cl.open {
		cl.hold.settled = false
		if !c.returning(cl) {
			cl.hold.awaiting = time.Time{}
		}
		c.hurried(id, true)
	}
}

// hurried judges that what did not wait for clusters went just before the end of the stream (ERR-7).
// goesOn: it does not end.
func (c *Checker) hurried(id int, goesOn bool) {
	if at := c.clients[id].hold.hurried; !at.IsZero() && (goesOn || !at.Equal(c.now)) {
		c.fail("ORDER-3", "c%d LDS: a change is sent while clusters await their ACK", id)
	}
}

// clusters notes a response that brings new clusters, and since when ACKs are owed. A response that waited
// for the last ACK goes on with the same wait. The first response goes on with the wait for a verdict
// on what the client came with, and the one that says what that has become with the wait of what came before.
func (h *hold) clusters(nonce string, since time.Time) {
	since = cmp.Or(h.returned, h.awaiting, since)
	if len(h.changing) == 0 && !h.settled {
		h.since = since
	}
	h.changing = append(h.changing, nonce)
}

// lasts reports whether what refers to clusters has to wait still.
func (h *hold) lasts(now time.Time) bool {
	return len(h.changing) > 0 && now.Before(h.since.Add(warmingHold))
}

// ranOut reports whether something may have waited for too long since ACKs are owed. Then clusters wait for none
// until one comes.
func (h *hold) ranOut(owing, now time.Time) bool {
	return len(h.changing) > 0 && !now.Before(h.since.Add(warmingHold)) || !now.Before(owing.Add(warmingHold))
}

// mayAwait notes that there may be news of listeners for a client: it waits as long as it is not known what clusters
// that the client came with have become, whether or not the client has judged a response.
func (c *Checker) mayAwait(k kind, cl *clientState) {
	if k.name == "LDS" && c.returning(cl) {
		cl.hold.awaiting = cmp.Or(cl.hold.awaiting, c.now)
	}
}

// returning reports whether it is not known what clusters that a client came with have become: the wildcard's set is
// not complete, or from disk, or one of its names has no answer but from disk.
func (c *Checker) returning(cl *clientState) bool {
	t, known := cl.topics["CDS"], c.known["CDS"]
	if t == nil || len(t.brought) == 0 {
		return false
	}
	for name := range t.interest.Names {
		if !known.byName.answered(name) || known.byName.matches(name, func(w word) bool { return w.restored }) {
			return true
		}
	}
	return t.interest.Wildcard && (!known.byWildcard.complete || known.byWildcard.settling)
}

// wantsClusters reports whether a client subscribes to any; nothing waits for them otherwise.
func (cl *clientState) wantsClusters() bool {
	t := cl.topics["CDS"]
	return t != nil && (t.interest.Wildcard || len(t.interest.Names) > 0)
}

// awaitsClusters reports whether changes of listeners may wait for the wildcard's set of clusters (ORDER-3): it is
// from disk, or the client came with clusters, the set is not complete, and the changes have come no longer ago than
// they may wait.
func (c *Checker) awaitsClusters(cl *clientState) bool {
	t, set := cl.topics["CDS"], c.known["CDS"].byWildcard
	if t == nil || !t.interest.Wildcard {
		return false
	}
	recent := func(s *relayStream) bool {
		l := s.lanes["LDS"]
		return l != nil && c.now.Before(l.latest.Add(warmingHold))
	}
	return set.settling || !cl.hold.returned.IsZero() && !set.complete && slices.ContainsFunc(slices.Collect(maps.Values(c.streams)), recent)
}

// completes reports whether a response is the rest of the answer to a wildcard that was asked for again, or a part of
// that. again: it is the first response since. All members are sent again, and wait if changes wait for clusters; what
// answers a name may go before them. By then there may be no members any more.
func (c *Checker) completes(cl *clientState, k kind, t *topic, again bool) bool {
	due := t.rest
	if again || due {
		t.rest = c.lacksMembers(cl, k, t)
	}
	return due && (!t.rest || t.parts.left > 0)
}

// lacksMembers reports whether a response lacks listeners that the wildcard's set has, while they may wait for clusters.
func (c *Checker) lacksMembers(cl *clientState, k kind, t *topic) bool {
	clusters := cl.topics["CDS"]
	if k.name != "LDS" || clusters == nil || !t.rest && len(clusters.unacked) == 0 && cl.hold.returned.IsZero() {
		return false
	}
	for name, w := range c.known[k.name].byWildcard.words {
		if w.present && (!w.unsure || !t.rest) && !t.parts.listed[name] && !t.interest.Named(name, w.aliases) && !c.knowsLarge(cl, k, t, name, w.label) {
			return true
		}
	}
	return false
}

// isNews reports whether a resource is a change for a client: it has another version, or none.
func (c *Checker) isNews(k kind, t *topic, name string, aliases []string, body []byte) bool {
	return !t.isFirst(k, name, aliases) && t.holds[name].label != c.bodies[string(body)].label
}

// isFirst reports whether a resource is a listener that the client asks for by name, and does not have: an answer and
// no change, also after an error.
func (t *topic) isFirst(k kind, name string, aliases []string) bool {
	_, has := t.holds[name]
	return k.name == "LDS" && (!has && t.interest.Named(name, aliases) || t.leadsFirst(name, aliases))
}

// leadsFirst reports whether a name that the client asks for leads to a resource, and to nothing that the
// client has.
func (t *topic) leadsFirst(name string, aliases []string) bool {
	return slices.ContainsFunc(append(slices.Clone(aliases), name), func(asked string) bool {
		return t.interest.Names[asked] && !slices.ContainsFunc(append(aliased(asked), asked), func(other string) bool {
			h, has := t.holds[other]
			return has && answers(other, h.aliases, asked)
		})
	})
}

// heldBack judges a response that may bring something new (ORDER-3).
func (c *Checker) heldBack(id int, cl *clientState, k kind, t *topic, nonce string, news, answer bool) {
	switch {
	case news && k.name == "CDS":
		since := c.now
		if len(t.unacked) > 0 {
			since = t.since
		}
		cl.hold.clusters(nonce, since)
	case news && k.name == "LDS" && !answer && cl.hold.lasts(c.now) && cl.wantsClusters():
		cl.hold.hurried = cmp.Or(cl.hold.hurried, c.now)
		c.hurried(id, !cl.leaves)
	}
}
