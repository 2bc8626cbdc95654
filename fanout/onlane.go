package fanout

import (
	"slices"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// OnLane is one lane of a group, for those who carry it upstream.
type OnLane struct {
	hub  *Hub
	lane Lane
}

// On is the lane of that address.
func (h *Hub) On(lane Lane) OnLane { return OnLane{h, lane} }

// look asks something of the lane, if anything is known of its type, under the lock.
func (o OnLane) look(ask func(*lane)) {
	o.hub.types.look(o.lane.Type, func(x *index) { ask(x.lane(o.lane)) })
}

// Holds reports whether a name is present on a lane at the version upstream gave
// it: what makes a bodyless resource a heartbeat (TTL-4).
func (o OnLane) Holds(name, version string) (holds bool) {
	o.look(func(l *lane) { holds = l.Holds(name, version) })
	return holds
}

// Has reports whether a name is present on a lane.
func (o OnLane) Has(name string) (has bool) {
	o.look(func(l *lane) { has = l.Has(name) })
	return has
}

// Lacks reports whether any of the resources is not here on a lane yet, or not
// confirmed, or only from disk: what makes a response add a name (RECON-16).
func (o OnLane) Lacks(set []cache.Received) (lacks bool) {
	o.look(func(l *lane) {
		lacks = slices.ContainsFunc(set, func(r cache.Received) bool {
			return !l.Confirmed(r.Name) || !o.lane.Wildcard && l.x.restored.has(r.Name)
		})
	})
	return lacks
}

// Same are the names of those of the resources that are here on a lane with the very
// content.
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

// Sweeps reports whether something is here on a lane that its origin has not announced,
// nor announces with these (RECON-12).
func (o OnLane) Sweeps(announced []cache.Received) (sweeps bool) {
	o.look(func(l *lane) {
		names := make(map[string]bool, len(announced))
		for _, r := range announced {
			names[r.Name] = true
		}
		sweeps = slices.ContainsFunc(l.Unconfirmed(), func(name string) bool { return !names[name] })
	})
	return sweeps
}

// Len is the number of resources on a lane.
func (o OnLane) Len() (n int) {
	o.look(func(l *lane) { n = l.Len() })
	return n
}

// Names is the whole interest of a lane.
func (o OnLane) Names() (names []string) {
	o.look(func(l *lane) { names = l.kind.desired() })
	return names
}

// Heard reports whether upstream has said something on a lane: of the wildcard's set, or of
// any of the names. What is here of another origin, and not confirmed, it has not said.
func (o OnLane) Heard() (heard bool) {
	o.look(func(l *lane) { heard = l.kind.hasSpoken() })
	return heard
}

// Subscribed reports whether some client subscribes to something on a lane. What only
// lingers nobody misses.
func (o OnLane) Subscribed() (subscribed bool) {
	o.look(func(l *lane) {
		for range l.kind.audience() {
			subscribed = true
			return
		}
	})
	return subscribed
}

// Asked says that upstream has been asked for names of a lane: what comes of them
// from now on is an answer. Doubtful are those of them that lead to something
// unconfirmed.
func (o OnLane) Asked(names []string) (doubtful []string) {
	o.look(func(l *lane) {
		if o.lane.Wildcard {
			l.x.wildcard.asked = true
			return
		}
		for _, name := range names {
			if id, ok := l.Find(name); ok {
				l.Ask(id)
			}
			if len(l.UnconfirmedAnswers(name)) > 0 {
				doubtful = append(doubtful, name)
			}
		}
	})
	return doubtful
}

// Doubt says that an origin which a lane is resumed with is not shown these resources:
// its silence says nothing of them, and they are unconfirmed (UP-17).
func (o OnLane) Doubt(names []string) {
	o.look(func(l *lane) {
		for _, name := range names {
			l.Doubt(name)
		}
	})
}

// Waiting is how many clients want something on a lane on which nothing was Heard.
func (o OnLane) Waiting() (clients int) {
	o.look(func(l *lane) {
		if l.kind.hasSpoken() {
			return
		}
		for id, subs := range l.kind.audience() {
			for _, s := range subs {
				if id == wildcardID || s.ids[0] == id { // each is counted at the first of its names
					clients++
				}
			}
		}
	})
	return clients
}

// Uncertain is what is in doubt on a lane because of faults.
func (o OnLane) Uncertain() (u Uncertainty) {
	o.look(func(l *lane) {
		d := &l.doubts
		u.Hidden, u.Clients = d.hidden != 0, l.x.interest.withheld
		u.Awaited = l.kind.awaitsDoubtful()
		for name := range d.faulty {
			u.Names = append(u.Names, name)
		}
	})
	slices.Sort(u.Names)
	return u
}

// SetUnavailable says that a lane gets no answers from upstream, and why, or with
// nil that it does again (ERR-7, H-39). Clients with something unresolved are
// told; resources stay as they are (ERR-5).
func (o OnLane) SetUnavailable(status *statuspb.Status) {
	o.hub.types.change(o.lane.Type, func(x *index) { x.lane(o.lane).setUnavailable(status) })
}

// Resume is the whole interest of a lane, for the first request of a stream to an
// origin (UP-3), with what is here, and may be shown to it, if resume, given the origin
// that came from, says so (RECON-6 to RECON-8). If not, it stays, but is
// unconfirmed until the new origin has announced it, or it is swept (RECON-12).
func (o OnLane) Resume(origin cache.Origin, stream uint64, resume func(from cache.Origin) bool) (names []string, here []cache.Held) {
	o.hub.types.change(o.lane.Type, func(x *index) {
		l := x.lane(o.lane)
		if names = l.kind.desired(); len(names) == 0 {
			return
		}
		if !o.lane.Wildcard {
			x.named.forgetOthers()
		}
		l.Recall()
		if !resume(l.Origin()) {
			l.Begin(origin)
			return
		}
		l.Resume(origin)
		if !o.lane.Wildcard && !origin.SotW && x.fullState() {
			x.shown.begin(stream)
		}
		here = slices.Collect(l.Known())
	})
	return names, here
}

// Uncertainty is what is in doubt on a lane because of faults (ERR-10).
type Uncertainty struct {
	Names  []string // in order
	Hidden bool     // and any other name
	// Clients is from how many something of the type is withheld; Awaited: somebody waits for
	// an answer, or for what is here to be confirmed or to go.
	Clients int
	Awaited bool
}

// Any: there is something.
func (u Uncertainty) Any() bool { return u.Hidden || len(u.Names) > 0 }
