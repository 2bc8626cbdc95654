package fanout

import (
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// ClientState is what an xDS client knows of a resource, as gRFC A78 and A88 have it: here the relay, of a
// name that it subscribes to, or of a member of the wildcard's set (CSDS-7). It is a closed set, fit for a metric
// label.
type ClientState string

// The values of ClientState. Those that end in Cached say that a copy is served all the same.
const (
	StateRequested           ClientState = "requested"            // upstream has not answered
	StateRequestedCached     ClientState = "requested_but_cached" // the copy is from disk
	StateAcked               ClientState = "acked"
	StateNacked              ClientState = "nacked" // upstream sent what cannot be used (ERR-10)
	StateNackedCached        ClientState = "nacked_but_cached"
	StateDoesNotExist        ClientState = "does_not_exist"
	StateDoesNotExistCached  ClientState = "does_not_exist_but_cached" // the guard holds the removal back (H-22)
	StateReceivedError       ClientState = "received_error"
	StateReceivedErrorCached ClientState = "received_error_but_cached"
	StateTimeout             ClientState = "timeout" // upstream was silent about the name (MISS-3, MISS-5)
	StateTimeoutCached       ClientState = "timeout_but_cached"
)

// ClientStates lists all of them.
func ClientStates() []ClientState {
	return []ClientState{
		StateAcked, StateRequested, StateRequestedCached, StateNacked, StateNackedCached, StateDoesNotExist, StateDoesNotExistCached,
		StateReceivedError, StateReceivedErrorCached, StateTimeout, StateTimeoutCached,
	}
}

// cached is the state of a name of which there is a copy although its state is this one.
func (s ClientState) cached(copied bool) ClientState {
	if copied && s != StateAcked {
		return s + "_but_cached"
	}
	return s
}

// states counts the names of a type by their state. A name that is subscribed to, and that the wildcard's set has,
// too, counts once. The cost grows with the names that are subscribed to, not with the set.
func (x *index) states() map[ClientState]int {
	counts := make(map[ClientState]int)
	w := &x.wildcard
	members := w.Len()
	for id := range cache.ID(x.named.Cap()) {
		name := x.named.Name(id)
		if name == "" || !x.desired(id) {
			continue
		}
		counts[x.stateOf(id, name)]++
		if w.Has(name) {
			members--
		}
	}
	special := func(name string, state ClientState) {
		if id, ok := x.named.Find(name); ok && x.desired(id) {
			return // it has been counted
		}
		copied := w.Has(name)
		if copied {
			members--
		}
		counts[state.cached(copied)]++
	}
	for name := range w.faults.malformed {
		special(name, StateNacked)
	}
	for name := range w.guard.held {
		if _, faulty := w.faults.malformed[name]; !faulty {
			special(name, StateDoesNotExist)
		}
	}
	if members > 0 {
		whole := StateAcked
		if w.restored {
			whole = StateRequestedCached
		}
		counts[whole] += members
	}
	return counts
}

func (x *index) stateOf(id cache.ID, name string) ClientState {
	a := x.answers.of(id)
	_, faulty := x.named.faults.malformed[name]
	_, held := x.named.guard.held[name]
	copied := a.State == cache.Present
	switch {
	case faulty:
		return StateNacked.cached(copied)
	case held && copied:
		return StateDoesNotExistCached
	case a.Error != nil && a.State != cache.Absent:
		return stateOfError(a.Error).cached(copied)
	case a.State == cache.Absent && a.Cause == cache.Timer:
		return StateTimeout
	case a.State == cache.Absent:
		return StateDoesNotExist
	case copied && !x.unconfirmed(id):
		return StateAcked
	}
	return StateRequested.cached(copied)
}

func stateOfError(status *statuspb.Status) ClientState {
	if status == unanswered {
		return StateTimeout
	}
	return StateReceivedError
}
