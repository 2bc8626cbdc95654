package session

import (
	"math"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// holdings records what the client of one stream holds of one type: for each resource a version, or
// nothing. The package comment says what follows from it. To hold a resource means to have been sent
// it. A NACK changes nothing, whatever the client goes on using: a rejected version is not sent again
// for its own sake (NACK-4).
//
// There are two kinds of client. Of a plain one, little is kept by name, since thousands of clients
// hold thousands of resources each: it has only the wildcard, and two positions in the order of
// changes say what it holds; or only names, and the Subscription keeps for each the position of the
// last answer (fanout.Told). Everybody else is exact: a table has each resource that it holds. These
// are the clients with names and the wildcard together, those that came with versions until all are
// reconciled, those that were sent something with aliases, and those from which a resource was left out (ERR-13).
// Nothing outside this file knows which kind a client is of, except the code that lists members.
type holdings struct {
	// sentTo is the position up to which the client was sent the changes of the wildcard's set. Of a
	// plain client removedTo is that up to which it was sent the removals from it (ORDER-2), and unseen
	// while it has nothing of the set.
	sentTo, removedTo cache.Seq
	exact             *exact // nil: the client is plain
	// aliased says that the client was sent a resource that has aliases, or was led to one by an alias.
	// tangled says that a name has led it to several, or that it gave up one of several names that lead to one.
	aliased, tangled bool
	// sets says that the client is sent whole sets (full-state SotW), each of which says all that
	// it holds.
	sets bool
}

// unseen is a position after all others.
const unseen cache.Seq = math.MaxUint64

// inStep reports whether a plain client was sent removals as far as it was sent changes. If so, it
// holds exactly what every client holds that was sent the set up to the same position, and such
// clients share responses.
func (h *holdings) inStep() bool {
	if h.removedTo == unseen {
		return h.sentTo == 0
	}
	return h.removedTo == h.sentTo
}

// reconciling reports whether the client came with versions that are not all reconciled, or that are gone
// and whose removal is not sent yet.
func (h *holdings) reconciling() bool { return h.exact.open() }

// subscribes reports whether the client subscribes to a name.
func subscribes(v fanout.View, name string) bool {
	_, subscribed := v.Lookup(name)
	return subscribed
}

// wildcard reports whether the client subscribes to the wildcard.
func wildcard(v fanout.View) bool {
	subscribed, _ := v.Wildcard()
	return subscribed
}

// whole reports whether the client subscribes to the wildcard, and its set can be sent.
func whole(v fanout.View) bool {
	subscribed, synced := v.Wildcard()
	return subscribed && synced
}

// of returns what the client holds of a resource. "" with true stands for some version that
// nobody knows.
func (h *holdings) of(v fanout.View, name string) (version string, some bool) {
	if h.exact != nil {
		if e := h.exact.find(name); e != nil {
			return e.version, true
		}
		return "", false
	}
	if id, ok := v.Lookup(name); ok {
		return h.named(v, id)
	}
	return h.member(v, name)
}

// named returns what a plain client holds of the resource that bears a subscribed name.
func (h *holdings) named(v fanout.View, id cache.ID) (version string, some bool) {
	told := v.Told(id)
	if !told.Copy() {
		return "", false
	}
	if r, at := v.Answer(id).Own(v.Name(id)); r != nil && at <= told.At() {
		return r.Version, true
	}
	return "", true
}

// member returns what a plain client holds of a member of the wildcard's set.
func (h *holdings) member(v fanout.View, name string) (version string, some bool) {
	if !wildcard(v) {
		return "", false
	}
	switch c, known := v.Set().Change(name); {
	case !known: // or the removal is forgotten, since a full-state SotW client is sent none
		return "", h.sentTo > 0 && min(h.sentTo, h.removedTo) < v.Set().Forgotten()
	case c.Resource == nil:
		return "", c.Seq > h.removedTo
	case c.Seq <= h.sentTo:
		return c.Resource.Version, true
	}
	return "", h.sentTo > 0
}

// copied reports whether the client may have a copy of what bears a subscribed name.
func (h *holdings) copied(v fanout.View, id cache.ID) bool {
	told := v.Told(id)
	if h.exact == nil || told.FromBefore() {
		return told.Copy()
	}
	return h.exact.find(v.Name(id)) != nil
}

// holds reports whether the client has the resource in exactly this version.
func (h *holdings) holds(v fanout.View, r *cache.Resource) bool {
	version, some := h.of(v, r.Name)
	return some && version == r.Version
}

// claims reports whether the client came with a version of the resource that is not reconciled.
func (h *holdings) claims(name string) bool { return h.exact.find(name).claims() }

// sent records that a response at a position carries a resource. Of a plain client the caller moves the
// positions.
func (h *holdings) sent(r *cache.Resource, at cache.Seq) {
	if h.exact != nil && !r.Negative {
		h.exact.put(r.Name, r.Version, at)
	}
}

// removed records that a response lists removals. Of a plain client the caller moves the positions.
func (h *holdings) removed(names ...string) {
	for _, name := range names {
		h.exact.remove(name)
	}
}

// unknown records that nobody knows which version the client holds of a resource.
func (h *holdings) unknown(v fanout.View, name string) {
	h.expand(v)
	h.exact.unknown(name)
}

// expand makes a plain client exact. A set may have forgotten members that the client holds, because a SotW client is
// sent no removals; of these the client asks for some by name.
func (h *holdings) expand(v fanout.View, asked ...string) {
	if h.exact != nil {
		return
	}
	e := new(exact)
	e.room(len(v.Names()) + v.Set().Len())
	for _, id := range v.Names() {
		if version, some := h.named(v, id); some {
			e.put(v.Name(id), version, v.Told(id).At())
		}
	}
	if wildcard(v) {
		for c := range v.Set().Since(0) {
			if version, some := h.member(v, c.Name); some {
				e.put(c.Name, version, h.sentTo)
				h.aliased = h.aliased || c.Resource != nil && len(c.Resource.Aliases) > 0
			}
		}
		for _, name := range asked {
			if _, some := h.member(v, name); some && e.find(name) == nil {
				e.put(name, "", 0)
			}
		}
		h.sentTo, h.removedTo = min(h.sentTo, h.removedTo), unseen // removals since are looked at again
		v.Set().Unread()
	}
	h.exact = e
}

// compact makes an exact Delta client plain, if the positions say the same as its table.
func (h *holdings) compact(v fanout.View) {
	switch e := h.exact; {
	case e == nil, e.open():
	case wildcard(v) && h.hasMembersOnly(v):
		h.exact, h.removedTo = nil, h.sentTo
		v.Set().Passed(h.removedTo)
	case !wildcard(v) && h.hasNamesOnly(v):
		h.exact, h.aliased, h.tangled = nil, false, false
	}
}

// hasMembersOnly reports whether an exact client holds exactly what the wildcard's set had at the position
// that it was sent, and no more.
func (h *holdings) hasMembersOnly(v fanout.View) bool {
	if len(v.Names()) > 0 || h.exact.count != v.Set().Len() {
		return false
	}
	for c := range v.Set().Since(0) {
		if c.Seq > h.sentTo || c.Resource != nil && !h.holds(v, c.Resource) {
			return false
		}
	}
	return true
}

// hasNamesOnly reports whether an exact client holds only what bears its names, each in a version that its
// name's last answer tells.
func (h *holdings) hasNamesOnly(v fanout.View) bool {
	if h.aliased && len(v.Names()) > 0 {
		return false
	}
	left := h.exact.count
	for _, id := range v.Names() {
		version, some := h.named(v, id)
		e := h.exact.find(v.Name(id))
		if some != (e != nil) {
			return false
		}
		if some {
			left--
		}
		if known := some && version != ""; known && version != e.version {
			return false
		}
	}
	return left == 0
}

// wants reports whether a client's interest may cover a resource.
func (h *holdings) wants(v fanout.View, name string) bool {
	return v.Resource(name) != nil || subscribes(v, name)
}

// forget erases what nobody wants, with exceptions.
func (h *holdings) forget(v fanout.View, except func(*entry) bool) {
	for e := range h.exact.all() {
		if !h.wants(v, e.name) && !except(e) {
			h.exact.remove(e.name)
		}
	}
}
