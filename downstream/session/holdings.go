package session

import (
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// holdings is what the client of one stream may hold of one type: of each resource a version,
// or nothing. Whether it is to be sent something is a matter of what there is and what it
// holds, and of its debts (debts.go): it is sent a resource whose version differs, and told of
// each that has gone. To hold means to have been sent: sending changes holdings by exactly what
// was said, and unsubscribing erases. A NACK changes none, whatever the client goes on using: what
// it has rejected is not sent again before it changes (NACK-4).
//
// Thousands of clients hold thousands of resources each, so that most of it is not written
// down by name:
//   - members of the wildcard's set: two positions in the order of changes, and what was told
//     ahead of them;
//   - what names lead to: for each name the position at which it was told, beside the name in
//     the Subscription (fanout.Told), as what it leads to if that bears another name. A resource
//     in that list counts only while exact has an entry for it: what the client was told since
//     as a member, or as gone, has none;
//   - by name and version only what the client came with, until it is judged, and what it was
//     sent because of an alias, and members that the positions have passed without their being
//     told, since a name leads to them (exact).
type holdings struct {
	// told: the client was sent what had changed in the wildcard's set up to here, and told of
	// what had gone from it up to untold (ORDER-2); unseen: it has nothing of it.
	told, untold cache.Seq
	// ahead is what it was told of members that had changed after these.
	ahead map[string]ahead
	// judging: the client came with versions (Delta), and not all are judged, or told if they
	// have gone.
	judging bool
	exact   exact
	// aliased: some resource that it was sent had aliases, or one of its names was an alias.
	aliased bool
	// sets: it is told whole sets (full-state SotW), each of which says all that it holds.
	sets bool
	// lists is what is left of an array from which list cuts.
	lists []string
}

// ahead is a version, or "" for gone, and when it was told.
type ahead struct {
	version string
	at      cache.Seq
}

// unseen is a position after all others.
const unseen cache.Seq = math.MaxUint64

// plain: the client holds what everybody holds who was told of the wildcard's set up to the
// same position. Such clients share what they are sent.
func (h *holdings) plain() bool {
	return !h.judging && len(h.ahead)+h.exact.noted == 0 && (h.told == h.untold || h.told == 0 && h.untold == unseen)
}

// of is what the client holds of a resource; "" with true: some version of it, nobody knows
// which.
func (h *holdings) of(v fanout.View, name string) (version string, some bool) {
	if version, some, exact := h.exact.find(name).of(); exact {
		return version, some
	}
	if id, ok := v.Lookup(name); ok {
		return h.named(v, id)
	}
	if h.sets && v.Leads(name) {
		return h.inSet(v, name)
	}
	return h.member(v, name)
}

// inSet is what it holds by the last set of a resource to which names lead that it does not bear:
// none of them led there before that set if it was a member.
func (h *holdings) inSet(v fanout.View, name string) (version string, some bool) {
	for _, id := range v.Names() {
		told, a := v.Told(id), v.Answer(id)
		if !told.Copy() {
			continue
		}
		for i, r := range a.Resources() {
			if r.Name != name {
				continue
			}
			if some = true; a.Changed(i) <= told.At() {
				return r.Version, true
			}
		}
	}
	if !some {
		return h.member(v, name)
	}
	return "", true
}

// named is what it holds of the resource that bears a subscribed name.
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

// member is what it holds of a member of the wildcard's set.
func (h *holdings) member(v fanout.View, name string) (version string, some bool) {
	if subscribed, _ := v.Wildcard(); !subscribed {
		return "", false
	}
	c, known := v.Set().Change(name)
	a, ok := h.ahead[name]
	if ok && (!known || c.Seq <= a.at) {
		return a.version, a.version != ""
	}
	switch {
	case !known: // or forgotten, since no removals are sent to a full-state SotW client
		return "", h.told > 0 && min(h.told, h.untold) < v.Set().Forgotten()
	case c.Resource == nil:
		return "", c.Seq > h.untold
	case c.Seq <= h.told:
		return c.Resource.Version, true
	}
	return "", h.told > 0 || a.version != ""
}

// holds: the client has exactly this.
func (h *holdings) holds(v fanout.View, r *cache.Resource) bool {
	version, some := h.of(v, r.Name)
	return some && version == r.Version
}

// versions is what is written down by version, as a client brings it.
func (h *holdings) versions() map[string]string {
	versions := make(map[string]string)
	for v := range h.exact.all(false) {
		if v.brought || v.some && v.version != "" {
			versions[v.name] = v.version
		}
	}
	return versions
}

// bring takes in what a Delta client came with.
func (h *holdings) bring(versions map[string]string) {
	h.judging = true
	h.exact.bring(versions)
}

// judged notes that all of that is judged.
func (h *holdings) judged() {
	h.judging = false
	h.exact.judged()
}

// brings: the client came with a version of it that is not judged yet.
func (h *holdings) brings(name string) bool { return h.exact.find(name).brings() }

// judge notes that the versions of some names that the client came with count no more.
func (h *holdings) judge(names ...string) {
	for _, name := range names {
		h.exact.judge(h.exact.find(name))
	}
}

// sent notes that a resource is sent to the client, as a member of the wildcard's set or for one
// of its names, in a response of this position.
func (h *holdings) sent(r *cache.Resource, at cache.Seq) {
	h.aliased = h.aliased || len(r.Aliases) > 0
	h.exact.sent(h.exact.find(r.Name), r.Version, at)
}

// sentAhead notes that it is sent a member, or has it already, or with nil that one has gone, before
// the wildcard's changes up to that one.
func (h *holdings) sentAhead(v fanout.View, name string, r *cache.Resource) {
	subscribed, _ := v.Wildcard()
	c, known := v.Set().Change(name)
	if !subscribed || !known || r != nil && c.Seq <= h.told || r == nil && c.Seq <= h.untold {
		return
	}
	version := ""
	if r != nil {
		version = r.Version
	}
	put(&h.ahead, name, ahead{version, v.Position()})
}

// gone notes that it is told that names lead to nothing.
func (h *holdings) gone(names []string) {
	h.judge(names...)
	for _, name := range names {
		h.exact.forget(name)
	}
}

// leaveName takes in that a name is about to be given up, and returns the resources that the
// client has because of it. Under the wildcard it has that until it is told what the wildcard has.
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
	if !under && (!some || !h.aliased) {
		h.exact.forget(name)
		return nil
	}
	h.exact.note(name, version, some)
	return []string{name}
}

// hasNone drops the note that it has nothing of a resource, where the positions say so, too.
func (h *holdings) hasNone(v fanout.View, name string) {
	if _, some, exact := h.exact.find(name).of(); some || !exact {
		return
	}
	h.exact.forget(name)
	if _, member := h.member(v, name); member {
		h.exact.note(name, "", false)
	}
}

// leaveMembers does the same of the wildcard, for members that may list a name that the client
// asks for, and those that are written down.
func (h *holdings) leaveMembers(v fanout.View) (members []string) {
	if len(v.Names())+h.exact.noted == 0 {
		return nil
	}
	asked := func(name string) bool { _, asked := v.Lookup(name); return asked }
	for _, changes := range []iter.Seq[cache.Change]{v.Set().Since(0), v.Set().Led(0)} {
		for c := range changes {
			version, some := h.of(v, c.Name)
			if some && !h.brings(c.Name) && (version == "" || c.Resource == nil || slices.ContainsFunc(c.Resource.Aliases, asked)) {
				h.exact.note(c.Name, version, true)
				members = append(members, c.Name)
			} else if h.exact.notes(c.Name) {
				members = append(members, c.Name)
			}
		}
	}
	return members
}

// passed notes that both positions are where they are: what was told ahead of them is no
// exception any more.
func (h *holdings) passed() {
	to := min(h.told, h.untold)
	maps.DeleteFunc(h.ahead, func(_ string, a ahead) bool { return a.at <= to })
	if len(h.ahead) == 0 {
		h.ahead = nil
	}
}

// list is an empty list with room for so many names. Most have room for one, and tens of thousands
// are made under the lock at a time, so that many share an array.
func (h *holdings) list(n int) []string {
	if n > len(h.lists) {
		h.lists = make([]string, max(n, 64))
	}
	list := h.lists[:0:n]
	h.lists = h.lists[n:]
	return list
}

// leads notes what a name leads to, and returns what it has led to and does not any more.
func (h *holdings) leads(v fanout.View, id cache.ID, a *cache.Answer) (left []string) {
	name, before := v.Name(id), v.LedTo(id)
	plain := len(a.More) == 0 && (a.Resource == nil || a.Resource.Name == name)
	if plain && before == nil {
		return nil
	}
	h.aliased = true
	if before == nil { // from now on what it holds is written down by name
		version, some, exact := h.exact.find(name).of()
		if !exact {
			version, some = h.named(v, id)
		}
		if some {
			h.exact.note(name, version, true)
			before = []string{name}
		}
	}
	now := h.list(1 + len(a.More))
	for _, r := range a.Resources() {
		now = append(now, r.Name)
	}
	for _, was := range h.exact.only(before) {
		if !slices.Contains(now, was) {
			left = append(left, was)
		}
	}
	if plain {
		now = nil
	}
	v.Lead(id, now)
	return left
}

// skipped writes down what the positions say of a member that is told, if at all, for a name, before
// they pass it.
func (h *holdings) skipped(v fanout.View, after cache.Seq) {
	for c := range v.Set().Led(after) {
		if c.Resource != nil && !h.exact.notes(c.Name) {
			version, some := h.member(v, c.Name)
			h.exact.note(c.Name, version, some)
		}
	}
}

// sentBy notes that it has a resource for another reason than that a name was answered, or the
// positions pass it: since it came with it, as a body that had to be asked for, or for a cluster.
func (h *holdings) sentBy(v fanout.View, r *cache.Resource) {
	id, own := v.Lookup(r.Name)
	switch {
	case own && v.LedTo(id) != nil, !own && v.Leads(r.Name):
		h.sentFor(nil, r)
	case !own:
		h.sentAhead(v, r.Name, r)
	}
}

// sentFor notes that it has a resource because of an alias. at is its place among the exact ones,
// or nil.
func (h *holdings) sentFor(at *entry, r *cache.Resource) {
	if at == nil {
		at = h.exact.add(r.Name)
	}
	h.exact.judge(at)
	h.exact.hasAt(at, r.Version, at.at)
}

// unsubscribed erases what the wildcard brought.
func (h *holdings) unsubscribed() { h.told, h.untold, h.ahead = 0, unseen, nil }
