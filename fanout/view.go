package fanout

import (
	"iter"
	"slices"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// View is what one client's interest covers, at one instant. It lives only for
// the duration of Subscription.Read.
type View struct {
	s *Subscription
	x *index
}

// Read looks at the interest and the resources under the type's lock. f must not
// block, encode, or call anything else of this package.
func (s *Subscription) Read(f func(View)) {
	x := s.index
	if x.look(func() { f(View{s, x}) }) {
		x.hub.wanted.notify() // after the lock is released
	}
}

// look runs f under the lock, and reports whether it asked something of upstream.
func (x *index) look(f func()) (asks bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.bodies.asks = false
	f()
	return x.bodies.asks
}

// Position is the group's latest change: a client told of all that the View shows
// is told of everything up to here.
func (v View) Position() cache.Seq { return cache.Seq(v.x.hub.seq.Load()) }

// Names are the subscribed names, ascending by ID.
func (v View) Names() []cache.ID { return v.s.ids }

// Has reports whether an ID stands for a subscribed name.
func (v View) Has(id cache.ID) bool {
	_, ok := v.s.place(id)
	return ok
}

// Lookup is the ID of a subscribed name.
func (v View) Lookup(name string) (cache.ID, bool) {
	id, ok := v.x.named.Find(name)
	return id, ok && v.Has(id)
}

// Name is the name of a subscribed ID.
func (v View) Name(id cache.ID) string { return v.x.named.Name(id) }

// Wildcard: the client subscribes to the wildcard; synced: its set is complete.
func (v View) Wildcard() (subscribed, synced bool) { return v.s.wildcard, v.x.wildcard.synced }

// Member is a resource of the wildcard set (WILD-12).
func (v View) Member(name string) *cache.Resource {
	if id, ok := v.x.wildcard.Find(name); ok && v.x.wildcard.State(id) == cache.Present {
		return v.x.wildcard.Answer(id).Resource
	}
	return nil
}

// Change is the last change of a member of the wildcard's set: its Resource is nil if it has
// gone since. false: none is known, for it never was a member or everybody who is told by name
// knows that it is none.
func (v View) Change(name string) (cache.Change, bool) {
	id, ok := v.x.wildcard.Find(name)
	if !ok || v.x.wildcard.State(id) == cache.Unknown {
		return cache.Change{}, false
	}
	if r := v.x.wildcard.Own(id); r != nil {
		return cache.Change{Name: name, Resource: r, Seq: v.x.wildcard.Answer(id).Seq}, true
	}
	return cache.Change{Name: name, Seq: v.x.wildcard.Vanished(id)}, true
}

// Members yields the wildcard set's changes after a position, latest first; what
// subscribed names lead to is left out, since it is answered by name (WILD-9,
// WILD-16).
func (v View) Members(after cache.Seq) iter.Seq[cache.Change] {
	return v.unnamed(v.x.wildcard.Since(after))
}

// Led yields the changes that Members leaves out, except those of subscribed names themselves.
func (v View) Led(after cache.Seq) iter.Seq[cache.Change] {
	return func(yield func(cache.Change) bool) {
		if len(v.s.ids) == 0 {
			return
		}
		for c := range v.x.wildcard.Since(after) {
			if _, own := v.Lookup(c.Name); !own && v.named(c.Name, c.Resource) && !yield(c) {
				return
			}
		}
	}
}

func (v View) unnamed(changes iter.Seq[cache.Change]) iter.Seq[cache.Change] {
	return func(yield func(cache.Change) bool) {
		for c := range changes {
			if len(v.s.ids) > 0 && v.named(c.Name, c.Resource) {
				continue
			}
			if !yield(c) {
				return
			}
		}
	}
}

// WildcardDigest sums up the wildcard set.
func (v View) WildcardDigest() string { return v.x.wildcard.text.of(v.x.wildcard.Digest()) }

// Covers reports whether the interest leads to a resource of this name, by the
// name itself, an alias, or the wildcard.
func (v View) Covers(name string) bool {
	member := v.Member(name)
	return v.s.wildcard && member != nil || len(v.s.ids) > 0 && (v.named(name, nil) || v.lent(member))
}

// Resource is the resource of this name that the interest leads to, or nil. Of a name that the
// client asks for the lane of names decides, whatever the wildcard's set has (WILD-16).
func (v View) Resource(name string) *cache.Resource {
	_, subscribed := v.Lookup(name)
	if id, ok := v.x.named.Find(name); ok && (subscribed || v.owns(name)) {
		if r, _ := v.Answer(id).Own(name); r != nil {
			return r
		}
	}
	if member := v.Member(name); v.s.wildcard && !subscribed || v.lent(member) {
		return member
	}
	return nil
}

// Here is a resource in exactly this version, if either lane has it.
func (v View) Here(name, version string) *cache.Resource {
	return v.x.answers.here(name, version)
}

// named reports whether the client's names lead to a resource of this name: it bears one of them,
// or lists one on their own lane, or as a member of the wildcard's set that is lent to it.
func (v View) named(name string, member *cache.Resource) bool {
	if _, ok := v.Lookup(name); ok {
		return true
	}
	return v.lent(member) || v.owns(name)
}

// Leads reports whether one of the client's names is an alias of the resource that
// bears this name.
func (v View) Leads(name string) bool { return v.owns(name) || v.lent(v.Member(name)) }

// lent: a member of the wildcard's set is lent to one of the client's names.
func (v View) lent(member *cache.Resource) bool {
	return member != nil && slices.ContainsFunc(member.Aliases, func(alias string) bool {
		id, ok := v.Lookup(alias)
		return ok && v.x.answers.borrows(id)
	})
}

// Unavailable is why upstream does not answer, by name and on the wildcard, or
// nil (ERR-7).
func (v View) Unavailable() (named, wildcard *statuspb.Status) {
	return v.x.named.unavailable, v.x.wildcard.unavailable
}

// WakeOnReturn has the client marked when upstream answers again.
func (v View) WakeOnReturn() { v.s.outage = true }

// SystemVersion is the digest over the group's resources of the type, for people
// who debug (RECON-15).
func (v View) SystemVersion() string {
	if v.x.named.Len() == 0 {
		return v.WildcardDigest()
	}
	return v.x.named.text.of(v.x.named.Digest())
}

// digestText is a digest in words, which it is put into once.
type digestText struct {
	digest cache.Digest
	text   string
}

func (t *digestText) of(d cache.Digest) string {
	if t.text == "" || t.digest != d {
		*t = digestText{d, d.String()}
	}
	return t.text
}
