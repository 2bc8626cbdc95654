package fanout

import (
	"iter"

	"github.com/xds-relay/xds-relay/cache"
)

// Set is the part of a View about the wildcard's set.
type Set View

// Set returns the part of the View about the wildcard's set.
func (v View) Set() Set { return Set(v) }

// Member returns a resource of the wildcard's set, or nil (WILD-12).
func (v Set) Member(name string) *cache.Resource { return v.x.wildcard.Bearer(name) }

// Change returns the last change of a member of the wildcard's set; its Resource is nil if the
// member was removed. It returns false if the name never was a member, or every reader has been
// sent its removal.
func (v Set) Change(name string) (cache.Change, bool) {
	id, ok := v.x.wildcard.Find(name)
	if !ok || v.x.wildcard.State(id) == cache.Unknown {
		return cache.Change{}, false
	}
	return cache.Change{Name: name, Resource: v.x.wildcard.Own(id), Seq: v.x.wildcard.Seq(id)}, true
}

// Since yields the changes of the wildcard's set after a position, latest first. It leaves out what
// subscribed names lead to, since that is answered by name (WILD-9, WILD-16).
func (v Set) Since(after cache.Seq) iter.Seq[cache.Change] {
	return v.unnamed(v.x.wildcard.Since(after))
}

func (v Set) unnamed(changes iter.Seq[cache.Change]) iter.Seq[cache.Change] {
	return func(yield func(cache.Change) bool) {
		for c := range changes {
			if !View(v).named(c.Name) && !yield(c) {
				return
			}
		}
	}
}

// Digest returns the digest of the wildcard's set.
func (v Set) Digest() string { return v.x.wildcard.digest() }

// Renewed yields the members of the wildcard's set whose TTL upstream has renewed after a position
// without a change of content, latest first.
func (v Set) Renewed(after cache.Seq) iter.Seq[cache.Change] {
	return v.unnamed(v.x.wildcard.Renewed(after))
}

// Len returns the number of members.
func (v Set) Len() int { return v.x.wildcard.Len() }
