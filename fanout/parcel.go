package fanout

import (
	"maps"

	"github.com/xds-relay/xds-relay/cache"
)

// Bodies that must not be cached (VALID-5). A Table has only a husk of such a resource.
// When upstream sends the body, it is handed to the clients that want it at that moment:
// the newest one of each name waits with their Subscription until it is sent.
// For a client that comes later the relay asks upstream once more.

// parcel is a body on its way to one client.
type parcel struct {
	*cache.Resource
	// asked: upstream was asked for the body on this client's behalf, so the client is sent it
	// although it is no change for others.
	asked bool
}

// hand hands a resource to the clients that take it from the lane. told: those that asked for its
// own name have been sent it from the other lane.
func (l *lane) hand(r *cache.Resource, changed, told bool) {
	if !r.DoNotCache {
		return
	}
	if l.at.Wildcard {
		for _, s := range l.x.interest.of(wildcardID) {
			if !s.named(r.Name, r) { // otherwise it takes the resource from the lane that answers its name
				s.hand(r, changed)
			}
		}
	}
	for name := range r.Names() {
		if id, ok := l.x.named.Find(name); ok && l.kind.leadsHere(id) {
			for _, s := range l.x.interest.of(id) {
				s.hand(r, changed && !(told && name == r.Name))
			}
		}
	}
}

func (s *Subscription) hand(r *cache.Resource, news bool) {
	_, asked := s.awaited[r.Name]
	asked = asked || r.GoesStale && !news // TTL-13
	if !asked && !news {
		return // another client asked for it
	}
	delete(s.awaited, r.Name)
	if s.parcels == nil {
		s.parcels = make(map[string]parcel)
	}
	s.parcels[r.Name] = parcel{r, asked || s.parcels[r.Name].asked}
	if asked {
		s.index.marks.markOne(s, wildcardID, recheck)
	}
}

// dropAwaited forgets the bodies that the client no longer wants. Whoever wants one again asks for it again.
func (s *Subscription) dropAwaited() {
	maps.DeleteFunc(s.awaited, func(name string, _ struct{}) bool { return s.view().Resource(name) == nil })
}

// Bodies is the part of a View about bodies that are not cached.
type Bodies View

// Bodies returns the part of the View about bodies that are not cached.
func (v View) Bodies() Bodies { return Bodies(v) }

// Husks reports whether some resource of the type has no body here.
func (v Bodies) Husks() bool { return v.x.named.Husks()+v.x.wildcard.Husks() > 0 }

// Body returns a resource with its body, or nil if upstream has to be asked for that.
func (v Bodies) Body(r *cache.Resource) *cache.Resource {
	if !r.Husk() {
		return r
	}
	if p := v.s.parcels[r.Name]; p.Resource != nil && p.Version == r.Version {
		return p.Resource
	}
	return nil
}

// Ask asks upstream for a body once more. The client is marked when it comes.
func (v Bodies) Ask(r *cache.Resource) {
	if v.awaits(r) {
		return
	}
	if v.s.awaited == nil {
		v.s.awaited = make(map[string]struct{})
	}
	v.s.awaited[r.Name] = struct{}{}
	byName := false
	for name := range r.Names() {
		if id, ok := View(v).Lookup(name); ok {
			byName = true
			if v.x.named.Answered(id) { // otherwise the body comes with the answer
				v.x.changed(id).body = true
			}
		}
	}
	if !byName {
		v.x.changed(wildcardID).body = true
	}
}

// Lacks reports whether the client waits for what a name leads to, since upstream has not answered
// or has been asked for the body once more.
func (v Bodies) Lacks(id cache.ID) bool {
	a := View(v).Answer(id)
	return a.State == cache.Unknown || a.Resource != nil && v.awaits(a.Resource)
}

func (v Bodies) awaits(r *cache.Resource) bool {
	_, awaits := v.s.awaited[r.Name]
	return awaits && r.Husk() // the next version may be kept
}

// Handed takes out the bodies that were asked for on the client's behalf, and returns those that
// are still current. told: the others have been sent as changes, and are dropped, too.
func (v Bodies) Handed(told bool) (asked []*cache.Resource) {
	for name, p := range v.s.parcels {
		if now := View(v).Resource(name); p.asked && now != nil && now.Version == p.Version {
			asked = append(asked, p.Resource)
		}
		if p.asked || told {
			delete(v.s.parcels, name)
		}
	}
	return asked
}
