package twin

import (
	"maps"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// When there is room for a type that had none, it is served on the same stream, as if the client had just
// asked for what it subscribes to (NODE-14). Nothing of such a type ever changes: a to d exist, and
// nothing else.

// retryRoom is how long it takes at most until room is found.
const retryRoom = time.Minute

// roomNames are those that exist.
var roomNames = poolNames[:4]

// room is what a client knows of a type for which there may be room.
type room struct {
	any    bool            // there has been room since it asked
	served bool            // it was sent something
	told   time.Time       // when it was last sent anything
	holds  map[string]bool // names of which it has the resource as it is
	stale  map[string]bool // names of which it has another version, or that do not exist
	gave   map[string]bool // names of which it came with a version, and that it gave up
	may    map[string]bool // names that it may be sent again
	spared map[string]bool // names of which it came with what there is, when it last asked for them
}

func newRoom(any bool) room {
	return room{any: any, holds: map[string]bool{}, stale: map[string]bool{}, gave: map[string]bool{}, may: map[string]bool{}, spared: map[string]bool{}}
}

// setRoom makes room for types that had none, or leaves none to clients that come later.
func (g *Game) setRoom(has bool) {
	if g.hasRoom = has; has {
		g.roomSince = g.relay.Now()
		for _, p := range g.everybody() {
			for _, r := range p.refused {
				r.room.any = true
			}
		}
	}
	g.relay.Room(has)
}

// brings has the client come with another version of a resource, with one that does not exist, and, if
// any client was sent it, with a resource as it is.
func (r *room) brings(url string, versions map[string]string) map[string]string {
	r.stale["a"], r.stale["zz"] = true, true
	brought := map[string]string{"a": "old", "zz": "old"}
	if version, known := versions[url+" b"]; known {
		r.holds["b"], brought["b"] = true, version
	}
	return brought
}

// asksAll notes that all there is may be sent again, except what the client came with.
func (r *room) asksAll() {
	for _, name := range roomNames {
		r.may[name] = r.may[name] || r.served || !r.holds[name]
	}
}

// gives notes that a client gives up what it has of a name.
func (r *room) gives(name string) {
	r.gave[name] = r.gave[name] || r.stale[name] || r.holds[name] && !r.served
	delete(r.holds, name)
}

// learnRoom notes the versions that clients are sent.
func (g *Game) learnRoom(resp *discovery.DeltaDiscoveryResponse) {
	for _, r := range resp.GetResources() {
		g.roomVersions[resp.GetTypeUrl()+" "+r.GetName()] = r.GetVersion()
	}
}

// served judges what a client is sent of a type for which there is room now, and may have been none before.
func (g *Game) served(p *player, r *refusal, set, gone []string) {
	full := p.sotw && r.url == fullestType
	uncovered := func(name string) bool { return r.room.holds[name] && !r.names[name] && !r.wildcard }
	cameWith := func(name string) bool {
		return r.room.stale[name] || r.room.gave[name] && !r.names[name] // another name may lead there (NAME-5)
	}
	answer := func(name string) bool { return !cameWith(name) && !uncovered(name) }
	keeps := func(name string) bool { return !r.room.gave[name] } // also what it came with
	if !r.crowds() || !r.room.any && (len(set) > 0 || slices.ContainsFunc(gone, keeps)) {
		g.checker.fail("NODE-14", "c%d is told of a type that is refused to it", p.id)
		return
	}
	if !r.room.served && r.room.any && (len(set) > 0 || slices.ContainsFunc(gone, func(name string) bool { return r.names[name] })) {
		r.room.served = true
		for name := range r.names { // it is as if they were just asked for
			if !r.room.holds[name] {
				r.asks(name)
			}
		}
		if r.wildcard {
			r.room.asksAll()
		}
	}
	if full {
		clear(r.room.holds)
	}
	for _, name := range set {
		switch exists := slices.Contains(roomNames, name); {
		case !exists || !r.names[name] && !r.wildcard:
			g.checker.fail("NODE-14", "c%d is told of %s, which it has not asked for, or which does not exist", p.id, name)
		case r.room.holds[name] && !r.room.may[name]:
			g.checker.fail("G5", "c%d is told of %s again", p.id, name)
		}
		r.room.holds[name] = true
		delete(r.room.stale, name)
		delete(r.room.may, name)
		delete(r.owed, name)
	}
	for _, name := range gone {
		switch {
		case slices.Contains(roomNames, name) && (r.names[name] || r.wildcard):
			g.checker.fail("G4", "c%d is told that %s is gone", p.id, name)
		case !r.room.may[name] && answer(name) && !full:
			g.checker.fail("DOWN-DELTA-14", "c%d is told again that %s is gone", p.id, name)
		}
		delete(r.room.holds, name)
		delete(r.room.stale, name)
		delete(r.room.gave, name)
		delete(r.room.may, name)
		delete(r.owed, name)
	}
	for name := range r.names {
		if full && slices.Contains(roomNames, name) && !r.room.holds[name] {
			g.checker.fail("DOWN-SOTW-6", "c%d wants %s, and its set lacks it", p.id, name)
		}
	}
}

// roomKnown judges whether a client is served that has waited for room for long enough.
func (g *Game) roomKnown(p *player, r *refusal) {
	if !r.crowds() || !g.hasRoom || g.relay.Now().Sub(g.roomSince) <= retryRoom {
		return
	}
	for _, name := range roomNames {
		if (r.wildcard || r.names[name]) && !r.room.holds[name] {
			g.checker.fail("NODE-14", "c%d wants %s, for which there is room, and does not hold it", p.id, name)
		}
	}
	if now := g.relay.Now(); now.Sub(g.roomSince) <= retryRoom+ackTimeout || now.Sub(r.room.told) <= ackTimeout {
		return // clients do not acknowledge these types, and a removal waits for that (DOWN-DELTA-15)
	}
	left := maps.Clone(r.room.stale)
	maps.Copy(left, r.room.holds)
	for name := range left {
		if covered := r.wildcard || r.names[name]; !p.sotw && len(r.names) > 0 && (r.room.stale[name] || !covered) {
			g.checker.fail("DOWN-DELTA-11", "c%d holds %s still, of a type for which there is room", p.id, name)
		}
	}
}
