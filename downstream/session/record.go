package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Holding is what the record says that the client holds of one resource: nothing, unless one of
// these is set.
type Holding struct {
	// Version is the one that the client has.
	Version string
	// Not is the current version, which the client was not sent: it has another one, or none.
	Not string
}

// Holdings returns the record of what the client holds of a type, as of now: of the resources in
// of, and of those that the record mentions. It leaves out those of which the client may have any
// version, or none: it came with a version that the relay does not know, or that must not keep the
// resource from being sent. The result is nil while parts of a response are still to be sent.
func (s *Session) Holdings(t cache.TypeURL, of ...string) map[string]Holding {
	st := s.find(t)
	if st == nil || len(s.chunks) > 0 {
		return nil
	}
	all := make(map[string]Holding)
	st.base().sub.Read(func(v fanout.View) {
		for _, name := range slices.Concat(st.base().mention(v, nil), of) {
			if h, clear := st.holding(v, name); clear {
				all[name] = h
			}
		}
	})
	return all
}

// mention appends all names of which the record may say something, some of them more than once.
func (h *holdings) mention(v fanout.View, names []string) []string {
	for _, id := range v.Names() {
		names = append(names, v.Name(id))
	}
	for e := range h.exact.all() {
		names = append(names, e.name)
	}
	if wildcard(v) {
		for c := range v.Set().Since(0) {
			names = append(names, c.Name)
		}
	}
	return names
}

// holding returns what the record says of one resource, if that is clear.
func (h *holdings) holding(v fanout.View, name string) (_ Holding, clear bool) {
	version, some := h.of(v, name)
	switch {
	case !some:
		return Holding{}, true
	case version != "":
		return Holding{Version: version}, true
	}
	r := v.Resource(name)
	if r == nil || h.unclear(v, name) {
		return Holding{}, false
	}
	return Holding{Not: r.Version}, true
}

// holding of a Delta client is what the record says, with exceptions. If the type is quiet,
// nothing is kept of a copy that the client asks for again (MISS-9). A resource that it came
// with, and that nothing covers, it may have dropped.
func (d *deltaState) holding(v fanout.View, name string) (_ Holding, clear bool) {
	h, clear := d.holdings.holding(v, name)
	asked := subscribes(v, name)
	switch {
	case !asked && !wildcard(v) && d.claims(name):
		return h, false
	case d.suppresses && asked && h == (Holding{}):
		return h, false
	}
	return h, clear
}

// holding of a SotW client is what the record says, with exceptions:
//   - If the type is not full-state, no response says that something is gone, and the client may
//     keep what it has had as long as it asks for it.
//   - Until its first set nobody knows by name what it came with, nor, without the wildcard,
//     what it keeps until its next of the names that it has given up.
//   - It has what stays in a whole set (ORDER-2).
func (s *sotwState) holding(v fanout.View, name string) (_ Holding, clear bool) {
	for _, r := range s.stays {
		if r.Name == name {
			return Holding{Version: r.Version}, true
		}
	}
	h, clear := s.holdings.holding(v, name)
	if h == (Holding{}) && s.mayKeep(v) {
		return h, false
	}
	return h, clear
}

// mayKeep reports whether the client may have what the record does not know.
func (s *sotwState) mayKeep(v fanout.View) bool {
	switch {
	case !s.sets:
		return true
	case s.lastNonce == "":
		return s.came != ""
	}
	return s.version == "" && !wildcard(v)
}

// unclear reports whether the record knows only that the client has some version.
func (h *holdings) unclear(v fanout.View, name string) bool {
	if h.exact != nil {
		return true
	}
	if id, ok := v.Lookup(name); ok {
		return v.Told(id).At() == 0
	}
	_, known := v.Set().Change(name)
	return !known
}
