package session

import (
	"slices"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// ClientName is one resource of a type, as the client has it and as the relay has it.
type ClientName struct {
	Name string `json:"name"`
	// Asked: the client names it. Otherwise it is a member of the wildcard's set, or an alias leads to it.
	Asked bool `json:"asked,omitempty"`
	// Step is how far the client is with it.
	Step Step `json:"step"`
	// Sent is the version that the client was sent last; empty: none, or it is not known which.
	Sent string `json:"sent,omitempty"`
	// Older: the client may have an older version, and it is not known which.
	Older bool `json:"older,omitempty"`
	// Now is the version that the relay has; empty: it has none.
	Now string `json:"now,omitempty"`
	// Changed is the position of the last change.
	Changed cache.Seq `json:"-"`
	// Resource is what the relay has; nil: nothing.
	Resource *cache.Resource `json:"-"`
}

// Step is how far a client is with one resource. It is a closed set.
type Step string

// The values of Step.
const (
	StepSynced   Step = "synced"   // the client has accepted what the relay has, also that there is nothing
	StepUnacked  Step = "unacked"  // it was sent and is not acknowledged
	StepRejected Step = "rejected" // it was sent and rejected
	StepUnsent   Step = "unsent"   // the client has another version, or none
	StepStays    Step = "stays"    // the client has what does not exist any more
	StepUnknown  Step = "unknown"  // the client has some version that the relay does not know
	StepAwaited  Step = "awaited"  // upstream has not answered yet
)

// Names describes the resources of a type that the client has or asks for, in order of their names,
// after a name and at most so many. more: there are others.
func (s *Session) Names(t cache.TypeURL, after string, most int) (names []ClientName, more bool) {
	st := s.find(t)
	if st == nil {
		return nil, false
	}
	st.base().sub.Read(func(v fanout.View) {
		all := distinct(st.base().mention(v, nil))
		i, found := slices.BinarySearch(all, after)
		if found {
			i++
		}
		for _, name := range all[i:] {
			n, some := describeName(st, v, name)
			if !some {
				continue
			}
			if more = len(names) == most; more {
				return
			}
			names = append(names, n)
		}
	})
	return names, more
}

// AllNames appends what Names describes to a list, all of it and at one instant (CSDS-6). scratch is for names, and
// is returned for the next call.
func (s *Session) AllNames(t cache.TypeURL, list []ClientName, scratch []string) ([]ClientName, []string) {
	st := s.find(t)
	if st == nil {
		return list, scratch
	}
	st.base().sub.Read(func(v fanout.View) {
		scratch = distinct(st.base().mention(v, scratch[:0]))
		for _, name := range scratch {
			if n, some := describeName(st, v, name); some {
				list = append(list, n)
			}
		}
	})
	return list, scratch
}

// WholeSet returns the wildcard's set of a type if the client has accepted all of it as it is now, and nothing else is to be
// said of the type: then AllNames would list these resources, each of them synced. nil: AllNames has to be asked.
func (s *Session) WholeSet(t cache.TypeURL) (set *fanout.News) {
	if st := s.find(t); st != nil {
		st.base().sub.Read(func(v fanout.View) {
			if hasWhole(st, v) {
				set, _ = v.Set().News(0)
			}
		})
	}
	return set
}

// hasWhole reports whether the client has accepted the wildcard's set as it is, and has nothing else.
func hasWhole(st state, v fanout.View) bool {
	x := st.base()
	if s, ok := st.(*sotwState); ok && len(s.stays) > 0 {
		return false
	}
	owes := len(x.unacked) > 0 || x.rejected != nil // the latter stays once there was one
	plain := x.exact == nil && x.inStep()
	members := wildcard(v) && plain && x.refusal == nil
	if owes || len(v.Names()) > 0 || !members {
		return false
	}
	for range v.Set().Since(x.sentTo) {
		return false
	}
	return true
}

// Name describes one resource of a type. some is false if the client has nothing to do with it.
func (s *Session) Name(t cache.TypeURL, name string) (n ClientName, some bool) {
	if st := s.find(t); st != nil {
		st.base().sub.Read(func(v fanout.View) { n, some = describeName(st, v, name) })
	}
	return n, some
}

func describeName(st state, v fanout.View, name string) (n ClientName, some bool) {
	x := st.base()
	id, asked := v.Lookup(name)
	n = ClientName{Name: name, Asked: asked}
	h, clear := st.holding(v, name)
	n.Sent, n.Older = h.Version, h.Not != ""
	r, has := v.Resource(name), false
	if r == nil {
		_, has = x.of(v, name)
	}
	switch {
	case r == nil && has:
		n.Step = StepStays
	case r == nil && asked && v.Answer(id).State == cache.Unknown:
		n.Step = StepAwaited
	case r == nil:
		n.Step = StepSynced
	default:
		n.Now, n.Changed, n.Resource = r.Version, v.Changed(r), r
		n.Step = x.step(n, clear)
	}
	return n, asked || has || r != nil
}

// step compares what the client holds of a resource with what there is.
func (x *exchange) step(n ClientName, clear bool) Step {
	switch {
	case !clear:
		return StepUnknown
	case n.Sent != n.Now:
		return StepUnsent
	case x.hasRejected(n.Changed):
		return StepRejected
	case n.Changed > x.ackedTo && len(x.unacked) > 0:
		return StepUnacked
	}
	return StepSynced
}
