package fanout

import (
	"maps"
	"slices"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// OnLane is one lane of a group, for the upstream side.
type OnLane struct {
	hub  *Hub
	lane Lane
}

// On returns the lane with that address.
func (h *Hub) On(lane Lane) OnLane { return OnLane{h, lane} }

// look reads the lane under the lock of its type, if anything is known of the type.
func (o OnLane) look(ask func(*lane)) {
	o.hub.types.look(o.lane.Type, func(x *index) { ask(x.lane(o.lane)) })
}

// is reports whether such is true of the lane. It is not if nothing is known of its type.
func (o OnLane) is(such func(*lane) bool) (is bool) {
	o.look(func(l *lane) { is = such(l) })
	return is
}

// Holds reports whether a name is present on a lane at this version of upstream's. If so, a
// resource without a body is a heartbeat (TTL-4).
func (o OnLane) Holds(name, version string) bool {
	return o.is(func(l *lane) bool { return l.Holds(name, version) })
}

// Has reports whether a name is present on a lane.
func (o OnLane) Has(name string) bool { return o.is(func(l *lane) bool { return l.Has(name) }) }

// Lacks reports whether any of the resources is not announced on a lane. If so, the response that brings
// them adds a name (RECON-16).
func (o OnLane) Lacks(set []cache.Received) bool {
	return o.is(func(l *lane) bool {
		return slices.ContainsFunc(set, func(r cache.Received) bool { return !l.Announced(r.Name) })
	})
}

// After returns what the resources of the lane would take after an update, in bytes of wire form, how much more that
// is than now, and which of the names that it sets are present.
func (o OnLane) After(u *cache.Update) (bytes, more int, held []string) {
	for _, r := range u.Set {
		more += r.Size()
	}
	o.look(func(l *lane) {
		bytes = l.Bytes()
		for _, r := range u.Set {
			if n := l.size(r.Name); n > 0 {
				more -= n
				held = append(held, r.Name)
			}
		}
		for _, name := range u.Removed {
			more -= l.size(name)
		}
	})
	return bytes + more, more, held
}

// size is what the resource of a name takes; 0 if there is none.
func (l *lane) size(name string) int {
	if r := l.Bearer(name); r != nil && r.Name == name {
		return r.Size()
	}
	return 0
}

// Same returns the names of those resources that a lane has with exactly this content.
func (o OnLane) Same(set []cache.Received) map[string]bool {
	same := make(map[string]bool)
	o.look(func(l *lane) {
		for _, r := range set {
			if l.Same(r.Resource) {
				same[r.Name] = true
			}
		}
	})
	return same
}

// Sweeps reports whether a lane has resources that its origin has not announced, does not announce with an
// Update, and has hidden with no fault (RECON-12).
func (o OnLane) Sweeps(u *cache.Update) bool {
	names := make(map[string]bool, len(u.Set))
	for _, r := range u.Set {
		names[r.Name] = true
	}
	return o.is(func(l *lane) bool {
		unreadable := u.Unreadable || l.faults.unreadable == l.guard.stream
		return !unreadable && slices.ContainsFunc(l.Unannounced(), func(name string) bool { return !names[name] })
	})
}

// Len returns the number of resources on a lane.
func (o OnLane) Len() (n int) {
	o.look(func(l *lane) { n = l.Len() })
	return n
}

// Names returns the whole interest of a lane.
func (o OnLane) Names() (names []string) {
	o.look(func(l *lane) { names = l.kind.desired() })
	return names
}

// Heard reports whether upstream has answered on a lane: with the wildcard's set, or for any of the
// names. Resources of another origin count only when they are announced.
func (o OnLane) Heard() bool { return o.is(func(l *lane) bool { return l.kind.hasSpoken() }) }

// Subscribed reports whether a client subscribes to something on a lane. Names that only linger do
// not count.
func (o OnLane) Subscribed() bool {
	return o.is(func(l *lane) bool {
		for range l.kind.audience() {
			return true
		}
		return false
	})
}

// Asked notes that upstream has been asked for names of a lane, so that what it sends of them from
// now on is an answer. It returns the names that lead to something unannounced.
func (o OnLane) Asked(names []string) (unannounced []string) {
	o.look(func(l *lane) {
		if o.lane.Wildcard {
			l.x.wildcard.asked = true
			return
		}
		for _, name := range names {
			delete(l.x.named.again, name)
			if id, ok := l.Find(name); ok {
				l.Ask(id, true)
				l.x.named.letIn(id)
			}
			if len(l.UnannouncedAnswers(name)) > 0 {
				unannounced = append(unannounced, name)
			}
		}
	})
	return unannounced
}

// Unannounce takes announcements back. A lane is resumed without showing them to the origin, so its
// silence proves nothing about them (UP-17).
func (o OnLane) Unannounce(names []string) {
	o.look(func(l *lane) {
		for _, name := range names {
			l.Unannounce(name)
		}
	})
}

// Waiting returns how many clients subscribe to something on a lane, if upstream has answered
// nothing on it (Heard).
func (o OnLane) Waiting() (clients int) {
	o.look(func(l *lane) {
		if l.kind.hasSpoken() {
			return
		}
		for id, subs := range l.kind.audience() {
			for _, s := range subs {
				if id == wildcardID || s.names.ids[0] == id { // each client counts at its first name
					clients++
				}
			}
		}
	})
	return clients
}

// Uncertain returns what is in doubt on a lane because of faults.
func (o OnLane) Uncertain() (u Uncertainty) {
	o.look(func(l *lane) {
		f := &l.faults
		u.Unreadable, u.Clients = f.unreadable != 0, l.x.interest.withheld
		u.Names, u.Awaited = slices.Sorted(maps.Keys(f.malformed)), l.kind.awaits() || l.spares()
	})
	return u
}

// SetUnavailable notes why a lane gets no answers from upstream, or with nil that it does again
// (ERR-7, H-39). Clients that wait for something are marked; resources stay as they are (ERR-5).
func (o OnLane) SetUnavailable(status *statuspb.Status) {
	o.hub.types.change(o.lane.Type, func(x *index) { x.lane(o.lane).setUnavailable(status) })
}

// SendEarly lets clients that came with nothing have what is here of a wildcard's set, before it is known to be
// complete (RECON-16).
func (o OnLane) SendEarly() {
	o.hub.types.change(o.lane.Type, func(x *index) { x.wildcard.sendEarly() })
}

// Resume prepares a lane for the first request of a stream to an origin (UP-3). It returns the
// lane's whole interest. If resume, which is called with the origin that the resources came from,
// is true, it also returns the resources whose versions may be shown (RECON-6 to RECON-8).
// Otherwise the resources stay but are unannounced, until the new origin announces them or they are
// swept (RECON-12).
func (o OnLane) Resume(origin cache.Origin, stream uint64, resume func(from cache.Origin) bool) (names []string, here []cache.Held) {
	o.hub.types.change(o.lane.Type, func(x *index) {
		l := x.lane(o.lane)
		if names = l.kind.desired(); len(names) == 0 {
			return
		}
		l.guard.begin(stream)
		if !o.lane.Wildcard {
			x.named.forgetOthers()
		}
		l.Recall()
		if !o.lane.Wildcard && x.fullState() {
			x.unsolicited.begin(stream)
		}
		if !resume(l.Origin()) {
			l.Begin(origin)
			if o.lane.Wildcard {
				x.wildcard.begins()
			}
			return
		}
		l.Resume(origin)
		here = l.Known()
	})
	return names, here
}

// Uncertainty is what is in doubt on a lane because of faults (ERR-10).
type Uncertainty struct {
	Names      []string // in order
	Unreadable bool     // any other name may be in doubt, too
	// Clients is the number of clients from which something of the type is withheld. Awaited
	// reports whether a client waits for an answer, or for restored or unannounced resources to be
	// confirmed or removed.
	Clients int
	Awaited bool
}

// Any reports whether anything is in doubt.
func (u Uncertainty) Any() bool { return u.Unreadable || len(u.Names) > 0 }
