package fanout

import (
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// View is what one client's interest covers at one instant. It is valid only during
// Subscription.Read.
type View struct {
	*NameList
	s *Subscription
	x *index
}

func (s *Subscription) view() View { return View{&s.names, s, s.index} }

// Read calls f with the interest and the resources, under the type's lock. f must not block,
// encode, or call anything else of this package.
func (s *Subscription) Read(f func(View)) {
	x := s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	f(s.view())
}

// Position returns the group's latest change. A client that has been sent everything that the View
// shows is up to date with this position.
func (v View) Position() cache.Seq { return cache.Seq(v.x.hub.seq.Load()) }

// Lookup returns the ID of a subscribed name.
func (v View) Lookup(name string) (cache.ID, bool) {
	id, ok := v.x.named.Find(name)
	return id, ok && v.Has(id)
}

// Name returns the name of a subscribed ID.
func (v View) Name(id cache.ID) string { return v.x.named.Name(id) }

// Wildcard reports whether the client subscribes to the wildcard, and whether its set can be sent to it: it is complete,
// or enough of it is here for a client that came with nothing, and not torn.
func (v View) Wildcard() (subscribed, synced bool) {
	w := &v.x.wildcard
	return v.s.wildcard, w.isFor(v.s.returns) && !w.torn()
}

// Resource returns the resource of this name that the interest leads to, or nil. If the client asks
// for the name, the lane of names decides, whatever the wildcard's set has (WILD-16).
func (v View) Resource(name string) *cache.Resource {
	switch id, subscribed := v.Lookup(name); {
	case subscribed:
		r, _ := v.Answer(id).Own(name)
		return r
	case v.Leads(name):
		return v.x.named.Bearer(name)
	case v.s.wildcard:
		return v.Set().Member(name)
	}
	return nil
}

// Changed returns when a resource of the View last changed; 0: it is not there in this version.
func (v View) Changed(r *cache.Resource) cache.Seq {
	if t, id := v.find(r); t != nil {
		return t.Seq(id)
	}
	return 0
}

// find returns where a resource of the View is, if it is there in this version.
func (v View) find(r *cache.Resource) (*cache.Table, cache.ID) {
	t := &v.x.wildcard.Table
	if v.named(r.Name) && v.x.named.Same(r) {
		t = &v.x.named.Table
	}
	if id, _ := t.Find(r.Name); t.Same(r) {
		return t, id
	}
	return nil, 0
}

// Here returns a resource in exactly this version, if either lane has it.
func (v View) Here(name, version string) *cache.Resource {
	for _, of := range []*cache.Table{&v.x.named.Table, &v.x.wildcard.Table} {
		if r := of.Bearer(name); r != nil && r.Version == version {
			return r
		}
	}
	return nil
}

// named reports whether the client's names lead to a resource of this name: one of them is its name
// or, on the lane of names, its alias.
func (v View) named(name string) bool {
	if len(v.Names()) == 0 {
		return false
	}
	_, ok := v.Lookup(name)
	return ok || v.Leads(name)
}

// Leads reports whether one of the client's names is the name or an alias of a resource that bears this name on the
// lane of names.
func (v View) Leads(name string) bool {
	asks := func(name string) bool {
		_, has := v.Lookup(name)
		return has
	}
	switch r := v.x.named.Bearer(name); {
	case r == nil:
		return false
	case v.s.sotw:
		return asks(name)
	default:
		return goesBy(r, asks)
	}
}

// Unavailable returns why upstream does not answer, by name and on the wildcard; nil: it does
// (ERR-7).
func (v View) Unavailable() (named, wildcard *statuspb.Status) {
	return v.x.named.unavailable, v.x.wildcard.unavailable
}

// SystemVersion returns the digest of the group's resources of the type, those asked for by name if
// there are any, for people who debug (RECON-15).
func (v View) SystemVersion() string {
	if v.x.named.Len() == 0 {
		return v.Set().Digest()
	}
	return v.x.named.digest()
}

// Knows reports whether the lane of names knows what bears a name, or that nothing does. A name without an answer leads to
// none of these.
func (v View) Knows(name string) bool {
	id, ok := v.x.named.Find(name)
	return ok && v.x.named.State(id) != cache.Unknown
}
