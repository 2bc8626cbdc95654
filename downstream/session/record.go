package session

import (
	"fmt"
	"iter"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Holding is what the record says that the client holds of one resource.
type Holding struct {
	Known Knowledge
	// Version is what the client holds (Exactly), or what it does not hold (Differs; "" if there
	// is no such resource now).
	Version string
}

// Knowledge is how much the record knows of one resource.
type Knowledge uint8

const (
	// Nothing: the client has no copy. It is what holds of each name that Holdings leaves out.
	Nothing Knowledge = iota
	// Exactly: the client has one version.
	Exactly
	// Differs: there was a change that the client has not been told of, so that it has another
	// version than there is now, or none.
	Differs
	// Unclear: the client may have any version, or none. It came with something of which the
	// relay was not told the version, or that is not to spare it anything.
	Unclear
)

// Fits: a client that has a version, or none, is as the record says.
func (h Holding) Fits(version string, some bool) bool {
	switch h.Known {
	case Nothing:
		return !some
	case Exactly:
		return some && version == h.Version
	case Differs:
		return !some || version != h.Version
	}
	return true
}

func (h Holding) String() string {
	switch h.Known {
	case Nothing:
		return "nothing"
	case Exactly:
		return h.Version
	case Differs:
		return fmt.Sprintf("another version than %q", h.Version)
	}
	return "some version"
}

// Holdings is the record of what the client holds of a type, by the names of resources, as it is
// at this moment; of some names in any case. What a response says that is under way in parts
// counts as told.
func (s *Session) Holdings(t cache.TypeURL, of ...string) map[string]Holding {
	all := make(map[string]Holding)
	if st := s.find(t); st != nil {
		st.base().sub.Read(func(v fanout.View) {
			for _, name := range slices.Concat(st.base().mentioned(v), of) {
				all[name] = st.holding(v, name)
			}
		})
	}
	return all
}

// Parted: parts of a response are yet to be sent.
func (s *Session) Parted() bool { return len(s.chunks) > 0 }

// mentioned are all names of which the record may say something, some of them more than once.
func (h *holdings) mentioned(v fanout.View) (names []string) {
	for _, id := range v.Names() {
		names = append(names, v.Name(id))
	}
	for e := range h.exact.all(false) {
		names = append(names, e.name)
	}
	if subscribed, _ := v.Wildcard(); !subscribed {
		return names
	}
	for _, changes := range []iter.Seq[cache.Change]{v.Members(0), v.Led(0)} {
		for c := range changes {
			names = append(names, c.Name)
		}
	}
	return names
}

// holding is what the record says of one resource.
func (h *holdings) holding(v fanout.View, name string) Holding {
	version, some := h.of(v, name)
	switch {
	case !some:
		return Holding{}
	case version != "":
		return Holding{Exactly, version}
	case h.unclear(v, name):
		return Holding{Known: Unclear}
	}
	r := v.Resource(name)
	if id, own := v.Lookup(name); own {
		r, _ = v.Answer(id).Own(name) // what is lent to another of its names it may have
	}
	if r != nil {
		version = r.Version
	}
	return Holding{Differs, version}
}

// holding of a Delta client is what the record says. Of a type of which it is told that a name is
// gone only if it has a copy, and has not asked since, nothing is kept of what it has and asks for
// again (MISS-9). What it came with, or was led to, by a name that it gave up it may have dropped, or
// have because of another name.
func (d *deltaState) holding(v fanout.View, name string) Holding {
	h := d.holdings.holding(v, name)
	_, subscribed := v.Lookup(name)
	wildcard, _ := v.Wildcard()
	_, released := d.released[name]
	if released || d.brings(name) && !subscribed && !wildcard || h.Known == Nothing && d.quiet && subscribed {
		return Holding{Known: Unclear}
	}
	return h
}

// holding of a SotW client is what the record says, except that
//   - of a type whose responses are not the whole, none says that something is gone, and what the
//     client has had it may keep as long as it asks for it;
//   - what it came with is known by no name, until its first set;
//   - what stays in a whole set it has (ORDER-2), and what a name has led to it may have until the
//     next one.
func (s *sotwState) holding(v fanout.View, name string) Holding {
	for _, r := range s.stays {
		if r.Name == name {
			return Holding{Exactly, r.Version}
		}
	}
	h := s.holdings.holding(v, name)
	if h.Known == Nothing && (!s.sets || s.came != "" && s.lastNonce == "" || s.changes(v)) {
		return Holding{Known: Unclear}
	}
	return h
}

// changes: of what names lead to something has changed since the last set, which may have had a
// resource that they do not lead to any more.
func (s *sotwState) changes(v fanout.View) bool {
	return slices.ContainsFunc(v.Names(), func(id cache.ID) bool {
		a, told := v.Answer(id), v.Told(id)
		return told.Copy() && (a.State != cache.Present || a.Seq > told.At())
	})
}

// unclear: that the client has some version of a resource is all that is known.
func (h *holdings) unclear(v fanout.View, name string) bool {
	if _, _, exact := h.exact.find(name).of(); exact {
		return true
	}
	if h.sets && v.Leads(name) {
		return slices.ContainsFunc(v.Names(), func(id cache.ID) bool { return v.Told(id) == fanout.Brought })
	}
	if id, ok := v.Lookup(name); ok {
		return v.Told(id).At() == 0
	}
	_, known := v.Change(name)
	return !known
}
