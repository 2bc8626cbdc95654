package fanout

import (
	"github.com/xds-relay/xds-relay/cache"
)

// Bodies that are not kept (VALID-5). A Table has only a husk of such a resource.
// When upstream sends the body, it is handed to those who want it at that moment:
// it waits with their Subscription, the newest of each name, until it is sent.
// Whoever comes later makes upstream be asked once more.

// bodies are those that are asked for once more.
type bodies struct {
	x     *index
	again map[cache.ID]struct{} // because the body of the answer was not kept
	asks  bool                  // one was added during this Read
}

// parcel is a body on its way to one client.
type parcel struct {
	*cache.Resource
	// asked: upstream was asked for it on this client's behalf, so that it is told
	// although it is no news to others.
	asked bool
}

// handNamed hands a resource to those who are interested in its names. told: who asked
// for its own name has been given it from the wildcard's copy.
func (b *bodies) handNamed(r *cache.Resource, changed, told bool) {
	if !r.DoNotCache {
		return
	}
	for name := range names(r) {
		if id, ok := b.x.named.Find(name); ok {
			for _, s := range b.x.interest.of(id) {
				b.hand(s, r, changed && !(told && name == r.Name))
			}
		}
	}
}

// handMember hands a member of the wildcard's set to those who see it.
func (b *bodies) handMember(r *cache.Resource, changed bool) {
	if !r.DoNotCache {
		return
	}
	for _, s := range b.x.interest.of(wildcardID) {
		b.hand(s, r, changed)
	}
	for name := range names(r) {
		if id, ok := b.x.named.Find(name); ok && b.x.answers.borrows(id) {
			for _, s := range b.x.interest.of(id) {
				b.hand(s, r, changed)
			}
		}
	}
}

func (b *bodies) hand(s *Subscription, r *cache.Resource, news bool) {
	_, asked := s.awaited[r.Name]
	if !asked && !news {
		return // others do not receive the answer to one who asks again
	}
	delete(s.awaited, r.Name)
	if s.parcels == nil {
		s.parcels = make(map[string]parcel)
	}
	s.parcels[r.Name] = parcel{r, asked || s.parcels[r.Name].asked}
	if asked {
		b.x.marks.one(s, wildcardID, again)
	}
}

// Husks: some resource of the type has no body here.
func (v View) Husks() bool { return v.x.named.Husks()+v.x.wildcard.Husks() > 0 }

// Body is a resource with its body, or nil if that has to be asked for.
func (v View) Body(r *cache.Resource) *cache.Resource {
	if !r.Husk() {
		return r
	}
	if p := v.s.parcels[r.Name]; p.Resource != nil && p.Version == r.Version {
		return p.Resource
	}
	return nil
}

// Ask has upstream asked for a body once more. The client is marked when it comes.
func (v View) Ask(r *cache.Resource) {
	if v.awaits(r) {
		return
	}
	if v.s.awaited == nil {
		v.s.awaited = make(map[string]struct{})
	}
	v.s.awaited[r.Name] = struct{}{}
	byName := false
	for name := range names(r) {
		if id, ok := v.Lookup(name); ok {
			byName = true
			if v.x.named.Answered(id) { // else the body comes with the answer
				v.x.bodies.ask(id)
			}
		}
	}
	if !byName {
		v.x.bodies.ask(wildcardID)
	}
}

func (b *bodies) ask(id cache.ID) {
	if b.again == nil {
		b.again = make(map[cache.ID]struct{})
	}
	b.again[id], b.asks = struct{}{}, true
	b.x.changed(id)
}

// Lacks: the client waits for what a name leads to, since upstream has not answered,
// or has been asked for the body once more.
func (v View) Lacks(id cache.ID) bool {
	a := v.Answer(id)
	return a.State == cache.Unknown || a.Resource != nil && v.awaits(a.Resource)
}

// LacksMembers is the same of the wildcard's set.
func (v View) LacksMembers() bool {
	if !v.s.wildcard || !v.x.wildcard.synced {
		return v.s.wildcard
	}
	for name := range v.s.awaited {
		if v.Member(name) != nil {
			return true
		}
	}
	return false
}

func (v View) awaits(r *cache.Resource) bool {
	_, awaits := v.s.awaited[r.Name]
	return awaits
}

// Handed takes the bodies that were asked for on the client's behalf, and returns those
// that still are what there is. told: the rest has been told as changes, and goes too.
func (v View) Handed(told bool) (asked []*cache.Resource) {
	for name, p := range v.s.parcels {
		if p.asked && v.holds(p.Resource) {
			asked = append(asked, p.Resource)
		}
		if p.asked || told {
			delete(v.s.parcels, name)
		}
	}
	if len(v.s.parcels) == 0 {
		v.s.parcels = nil
	}
	return asked
}

// holds: the client's interest leads to exactly this resource.
func (v View) holds(r *cache.Resource) bool {
	return v.x.answers.here(r.Name, r.Version) != nil && v.Covers(r.Name)
}
