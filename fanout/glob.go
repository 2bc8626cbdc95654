package fanout

import (
	"iter"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// A client that subscribes to a glob is sent what the glob covers (NAME-11). Like the wildcard's set it comes in one
// response or several, and what a client came with is removed only once all of it is here (RECON-16).

// completes notes the globs whose members are all here now. Silence says so, too: what the stream was shown has not changed.
func (n *namedLane) completes(u *cache.Update) {
	for _, name := range slices.Concat(u.Overdue, u.Missing, u.Unanswered) {
		id, known := n.Find(name)
		if _, already := n.complete[name]; known && !already && cache.IsGlob(name) {
			n.completesOne(name, id)
		}
	}
}

func (n *namedLane) completesOne(glob string, id cache.ID) {
	if n.Answered(id) {
		n.complete[glob] = struct{}{}
		n.x.marks.mark(id, recheck)
	}
}

// Glob reports whether a subscribed name is a glob.
func (v View) Glob(id cache.ID) bool { return cache.IsGlob(v.Name(id)) }

// Complete reports whether everything that a subscribed name leads to is here.
func (v View) Complete(id cache.ID) bool {
	if !v.Glob(id) || v.x.named.State(id) == cache.Absent {
		return true
	}
	_, complete := v.x.named.complete[v.Name(id)]
	return complete
}

// Members yields the members of a glob that have changed after a position, latest first.
func (v View) Members(glob cache.ID, after cache.Seq) iter.Seq[cache.Change] {
	return v.x.named.Members(glob, after)
}

// Left yields the names that have left a glob after a position, latest first, whether or not they are back.
// all is false if some may be missing.
func (v View) Left(glob cache.ID, after cache.Seq) (names iter.Seq[string], all bool) {
	return v.x.named.Left(glob, after)
}

// Leading yields all resources to which a subscribed name leads.
func (v View) Leading(id cache.ID) iter.Seq[*cache.Resource] {
	if v.Glob(id) {
		return v.x.named.Leads(id)
	}
	a := v.Answer(id)
	if a.Resource == nil {
		return nothing
	}
	return slices.Values(a.Resources())
}

func nothing(func(*cache.Resource) bool) {}

// Unconfirmed reports whether a resource that bears a name is known from disk only.
func (v View) Unconfirmed(name string) bool {
	_, unconfirmed := v.x.named.Age(name)
	return unconfirmed
}
