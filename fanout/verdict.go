package fanout

import "github.com/xds-relay/xds-relay/cache"

// Verdict is what the relay knows of a name for one client (protocol.md §0). Sets that go to
// clients, unary calls, readiness and failover all ask here whether a name is resolved.
type Verdict uint8

const (
	// Unknown: upstream has not answered. Clients wait.
	Unknown Verdict = iota
	// Copy: there is a copy, upstream's latest as far as this client is concerned (RECON-19).
	Copy
	// Gone: upstream does not have it.
	Gone
	// Refused: there is no copy, and upstream has answered with an error.
	Refused
	// Doubt: a client that came with a copy may keep it. What upstream sent cannot be used, or the
	// copy here is restored, or only a silence that proves little says that the name does not
	// exist. Nobody waits for the name, and nothing is sent of it.
	Doubt
)

// Awaited reports whether the client may be sent more than it was: an answer, or the copy.
func (v Verdict) Awaited() bool { return v == Unknown || v == Copy }

// Verdict returns that of a subscribed name. brought: the client came with a copy of it, or may
// have.
func (v View) Verdict(id cache.ID, brought bool) Verdict {
	return v.x.verdict(id, v.Answer(id), brought)
}

// Doubted reports whether a name that a client came with is in doubt. A name that it does not
// subscribe to may be in doubt, too: it may bear the resource that a name with a hidden fault leads
// to.
func (v View) Doubted(name string) bool {
	if id, ok := v.Lookup(name); ok {
		return v.Verdict(id, true) == Doubt
	}
	if v.s.wildcard && v.Set().Member(name) == nil && v.x.wildcard.mayHold(name) {
		return true
	}
	return len(v.s.names.ids) > 0 && v.x.named.faults.concern(name)
}

func (x *index) verdict(id cache.ID, a cache.Answer, brought bool) Verdict {
	switch {
	case a.State == cache.Present && brought && x.unconfirmed(id):
		return Doubt
	case a.State == cache.Present:
		return Copy
	case brought && x.named.mayHold(x.named.Name(id), a):
		return Doubt
	case a.State == cache.Absent:
		return Gone
	case a.Error != nil && cache.Resolves(a.Error):
		return Refused
	}
	return Unknown
}

// Withhold notes whether something is withheld from the client because it is in doubt.
func (v View) Withhold(withheld bool) {
	switch {
	case withheld && !v.s.withheld:
		v.x.interest.withheld++
	case !withheld && v.s.withheld:
		v.x.interest.withheld--
	}
	v.s.withheld = withheld
}
