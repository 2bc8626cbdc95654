package session

import (
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// holdings records what the client of one stream may hold of one type: for each resource a
// version, or nothing. The package comment says what follows from it. To hold a resource means to
// have been sent it. A NACK changes nothing, whatever the client goes on using: a rejected version
// is not sent again for its own sake (NACK-4).
//
// Thousands of clients hold thousands of resources each, so most of the record is not kept by
// name:
//   - Members of the wildcard's set are recorded as two positions in the order of changes, and
//     the exceptions that were sent ahead of these positions.
//   - For each subscribed name, the Subscription keeps the position of the last answer
//     (fanout.Told) and the resources that the name led to, if these bear other names. A resource
//     in that list counts only while exact has an entry for it; the entry goes when the client is
//     sent the resource as a member, or its removal.
//   - exact keeps by name and version the exceptions: what the client came with (until that is
//     judged), what it was sent because of an alias, what passes from a name to the wildcard or
//     back, and members that the positions have passed without sending them.
type holdings struct {
	// sentTo is the position up to which the client was sent the changes of the wildcard's set, and
	// removedTo that up to which it was sent the removals from it (ORDER-2). removedTo is unseen while
	// the client has nothing of the set.
	sentTo, removedTo cache.Seq
	// ahead has the members that were sent, or removed, beyond these positions.
	ahead map[string]ahead
	exact exact
	// aliased says that some resource that the client was sent had aliases, or that one of its
	// names was an alias.
	aliased bool
	// sets says that the client is sent whole sets (full-state SotW), each of which says all that
	// it holds.
	sets bool
	// lists is the rest of the array from which list cuts.
	lists []string
}

// ahead is a version that was sent, or "" for a removal, and the position of that response.
type ahead struct {
	version string
	at      cache.Seq
}

// unseen is a position after all others.
const unseen cache.Seq = math.MaxUint64

// plain reports whether the client holds exactly what every client holds that was sent the
// wildcard's set up to the same position. Such clients share responses.
func (h *holdings) plain() bool {
	exceptions := len(h.ahead) + h.exact.noted + h.exact.toJudge
	return exceptions == 0 && h.inStep()
}

// inStep reports whether the client was sent removals as far as it was sent changes.
func (h *holdings) inStep() bool {
	if h.removedTo == unseen {
		return h.sentTo == 0
	}
	return h.removedTo == h.sentTo
}

// judging reports whether a Delta client came with versions of which some are not judged yet, or
// are gone and their removal is not sent yet.
func (h *holdings) judging() bool { return h.exact.toJudge > 0 }

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
	if version, some, exact := h.exact.find(name).of(); exact {
		return version, some
	}
	if id, ok := v.Lookup(name); ok {
		return h.named(v, id)
	}
	return h.member(v, name)
}

// named returns what the client holds of the resource that bears a subscribed name.
func (h *holdings) named(v fanout.View, id cache.ID) (version string, some bool) {
	told := v.Told(id)
	if !told.Copy() || v.LedTo(id) != nil {
		return "", false
	}
	if r, at := v.Answer(id).Own(v.Name(id)); r != nil && at <= told.At() {
		return r.Version, true
	}
	return "", true
}

// noteNamed records what the client holds of the resource that bears a subscribed name, and the
// position of the name's answer, unless something is recorded already.
func (h *holdings) noteNamed(v fanout.View, id cache.ID, version string, some bool) {
	if at := h.exact.add(v.Name(id)); !at.notes() {
		h.exact.noteAt(at, version, some, v.Told(id).At())
	}
}

// member returns what the client holds of a member of the wildcard's set.
func (h *holdings) member(v fanout.View, name string) (version string, some bool) {
	if !wildcard(v) {
		return "", false
	}
	c, known := v.Set().Change(name)
	a, ok := h.ahead[name]
	if ok && (!known || c.Seq <= a.at) {
		return a.version, a.version != ""
	}
	switch {
	case !known: // or the removal is forgotten, since a full-state SotW client is sent none
		return "", h.sentTo > 0 && min(h.sentTo, h.removedTo) < v.Set().Forgotten()
	case c.Resource == nil:
		return "", c.Seq > h.removedTo
	case c.Seq <= h.sentTo:
		return c.Resource.Version, true
	}
	return "", h.sentTo > 0 || a.version != ""
}

// holds reports whether the client has the resource in exactly this version.
func (h *holdings) holds(v fanout.View, r *cache.Resource) bool {
	version, some := h.of(v, r.Name)
	return some && version == r.Version
}

// brings reports whether the client came with a version of the resource that is not judged yet.
func (h *holdings) brings(name string) bool { return h.exact.find(name).brings() }

// judge notes that what the client came with of some names no longer counts.
func (h *holdings) judge(names ...string) {
	for _, name := range names {
		h.exact.judge(h.exact.find(name))
	}
}

// sentAhead notes that a member, or with nil its removal, is sent before the wildcard's positions
// reach its change, or that the client has it already.
func (h *holdings) sentAhead(v fanout.View, name string, r *cache.Resource) {
	version, passed := "", h.removedTo
	if r != nil {
		version, passed = r.Version, h.sentTo
	}
	c, known := v.Set().Change(name)
	if !wildcard(v) || !known || c.Seq <= passed {
		return
	}
	put(&h.ahead, name, ahead{version, v.Position()})
}

// leaveName takes in that a name is about to be given up, and returns the resources that the
// client has because of it. Under the wildcard it keeps them until it is sent the wildcard's
// state of them.
func (h *holdings) leaveName(v fanout.View, id cache.ID, under bool) []string {
	name := v.Name(id)
	if led := v.LedTo(id); led != nil {
		if v.Lead(id, nil); !under && !slices.Contains(led, name) {
			h.exact.forget(name)
		}
		return h.exact.only(led)
	}
	if under && h.exact.find(name).brings() {
		return nil // it is judged as what the client came with
	}
	version, some := h.of(v, name)
	if stays := h.aliased && (some || v.Leads(name)); !under && !stays {
		h.exact.forget(name)
		return nil
	}
	h.noteNamed(v, id, version, some)
	return []string{name}
}

// dropNone drops the note that the client has nothing of a resource, if the positions say the
// same. Otherwise it reports that the client lacks a member.
func (h *holdings) dropNone(v fanout.View, name string) (lacks bool) {
	if _, some, exact := h.exact.find(name).of(); some || !exact {
		return false
	}
	h.exact.forget(name)
	if _, lacks = h.member(v, name); lacks {
		h.exact.note(name, "", false)
	}
	return lacks
}

// leaveMembers takes in that the wildcard is about to be given up. It records the members that may list a
// name which the client asks for, and returns them and those that are recorded already.
func (h *holdings) leaveMembers(v fanout.View) (members []string) {
	if !wildcard(v) || len(v.Names())+h.exact.noted == 0 { // giving up what it never had changes nothing (DOWN-DELTA-17)
		return nil
	}
	asked := func(name string) bool { return subscribes(v, name) }
	mayList := func(version string, r *cache.Resource) bool {
		unknown := version == "" || r == nil
		return unknown || slices.ContainsFunc(r.Aliases, asked)
	}
	for _, changes := range []iter.Seq[cache.Change]{v.Set().Since(0), v.Set().Led(0)} {
		for c := range changes {
			switch version, some := h.of(v, c.Name); {
			case h.exact.find(c.Name).notes():
				members = append(members, c.Name)
			case some && !h.brings(c.Name) && mayList(version, c.Resource):
				h.exact.note(c.Name, version, true)
				members = append(members, c.Name)
			}
		}
	}
	return members
}

// passed drops the exceptions that both positions have reached.
func (h *holdings) passed() {
	to := min(h.sentTo, h.removedTo)
	maps.DeleteFunc(h.ahead, func(_ string, a ahead) bool { return a.at <= to })
	if len(h.ahead) == 0 {
		h.ahead = nil
	}
}

// list returns an empty list with room for so many names. Most lists have one name, and tens of
// thousands are made under the lock at a time, so many share an array.
func (h *holdings) list(n int) []string {
	if n > len(h.lists) {
		h.lists = make([]string, max(n, 64))
	}
	list := h.lists[:0:n]
	h.lists = h.lists[n:]
	return list
}

// leads notes what a name leads to, and returns the resources that it has led to and no longer
// does; as long as it has no answer, only those that the client's other interest covers.
func (h *holdings) leads(v fanout.View, id cache.ID, a *cache.Answer) (left []string) {
	name, before := v.Name(id), v.LedTo(id)
	plain := len(a.More) == 0 && (a.Resource == nil || a.Resource.Name == name)
	if plain && before == nil {
		return nil
	}
	if a.State == cache.Unknown {
		return slices.DeleteFunc(h.exact.only(slices.Clone(before)), func(was string) bool { return v.Resource(was) == nil })
	}
	h.aliased = true
	if before == nil { // from now on its resources are recorded by name
		if version, some := h.of(v, name); some {
			h.noteNamed(v, id, version, true)
			before = []string{name}
		}
	}
	now := h.list(1 + len(a.More))
	for _, r := range a.Resources() {
		now = append(now, r.Name)
	}
	left = slices.DeleteFunc(h.exact.only(before), func(was string) bool { return slices.Contains(now, was) })
	if plain {
		now = nil
	}
	v.Lead(id, now)
	return left
}

// skipped records what the positions say of members that are sent, or removed, only for a name, if
// at all, before the positions pass them. If the answer to a name has changed and is not sent yet
// (unsent), it may change again before, and the member then counts as what the name led to.
func (h *holdings) skipped(v fanout.View, after cache.Seq, unsent []cache.ID) {
	for c := range v.Set().Led(after) {
		version, some := h.member(v, c.Name)
		if (some || c.Resource != nil) && !h.exact.find(c.Name).notes() {
			h.exact.note(c.Name, version, some)
		}
	}
	for _, id := range unsent {
		if !v.Has(id) {
			continue
		}
		if a := v.Answer(id); len(a.More) > 0 || a.Resource != nil && a.Resource.Name != v.Name(id) {
			led := slices.Clone(v.LedTo(id))
			for _, r := range a.Resources() {
				led = append(led, r.Name)
			}
			v.Lead(id, distinct(led))
			h.aliased = true
		}
	}
}

// sentBy notes that the client has a resource although neither a name was answered with it nor a
// position passed it: it came with the resource, or the resource was sent for a cluster.
func (h *holdings) sentBy(v fanout.View, r *cache.Resource) {
	id, own := v.Lookup(r.Name)
	switch {
	case own:
		if v.LedTo(id) != nil {
			h.sentFor(r)
		}
	case v.Leads(r.Name):
		h.sentFor(r)
	default:
		h.sentAhead(v, r.Name, r)
	}
}

// sentFor notes that the client has a resource because of an alias.
func (h *holdings) sentFor(r *cache.Resource) {
	at := h.exact.add(r.Name)
	h.exact.judge(at)
	h.exact.noteAt(at, r.Version, true, at.at)
}

// unsubscribed erases what the wildcard brought.
func (h *holdings) unsubscribed() { h.sentTo, h.removedTo, h.ahead = 0, unseen, nil }
