package fanout

import "github.com/xds-relay/xds-relay/cache"

// Verdict is what is known of a name for somebody who asks (protocol.md §0). Whoever
// wants to know whether a name is resolved asks for it here: sets that go to clients,
// unary calls, readiness, failover.
type Verdict uint8

const (
	// Unknown: upstream has been asked, and has not answered. Clients wait.
	Unknown Verdict = iota
	// Copy: there is a copy, and it is what upstream said last.
	Copy
	// Gone: upstream does not have it.
	Gone
	// Refused: there is no copy, and upstream has answered with an error.
	Refused
	// Doubt: whoever brought a copy may keep it. What upstream said cannot be used, or
	// what is here is from disk, or only a silence that nothing vouches for says that the
	// name does not exist. Nobody waits for it, and nothing is said of it.
	Doubt
)

// Resolved: nobody needs to wait.
func (d Verdict) Resolved() bool { return d != Unknown }

// Verdict is that of a subscribed name. brought: the client that asks came with a copy of
// it, or may have.
func (v View) Verdict(id cache.ID, brought bool) Verdict {
	return v.x.verdict(id, v.Answer(id), brought)
}

// SetVerdict is that of the wildcard's set: Unknown, Doubt or Copy. brought: the client that
// asks came with members of it, or may have.
func (v View) SetVerdict(brought bool) Verdict {
	switch {
	case !v.s.wildcard:
		return Copy
	case !v.x.wildcard.synced:
		return Unknown
	case brought && (v.x.restored.set || v.x.wildcard.doubts.beside(&v.x.wildcard.Table)):
		return Doubt
	}
	return Copy
}

// Doubted: nothing can be said of a name that a client brought. What it does not subscribe to
// may be what a name leads to that a fault hides.
func (v View) Doubted(name string) bool {
	if id, ok := v.Lookup(name); ok {
		return v.Verdict(id, true) == Doubt
	}
	return v.s.wildcard && v.Member(name) == nil && v.x.wildcard.doubts.concern(name) ||
		len(v.s.ids) > 0 && v.x.named.doubts.concern(name)
}

func (x *index) verdict(id cache.ID, a cache.Answer, brought bool) Verdict {
	switch {
	case a.State == cache.Present && brought && x.restored.leads(id):
		return Doubt
	case a.State == cache.Present:
		return Copy
	case brought && x.named.doubted(id, a):
		return Doubt
	case a.State == cache.Absent:
		return Gone
	case a.Error != nil && cache.Resolves(a.Error):
		return Refused
	}
	return Unknown
}

// Withhold says whether something is not said to the client because it is in doubt.
func (v View) Withhold(withheld bool) { v.x.interest.withhold(v.s, withheld) }

func (i *interest) withhold(s *Subscription, withheld bool) {
	switch {
	case withheld && !s.withheld:
		i.withheld++
	case !withheld && s.withheld:
		i.withheld--
	}
	s.withheld = withheld
}
