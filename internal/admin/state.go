package admin

import (
	"github.com/xds-relay/xds-relay/downstream/session"
)

// ClientState is how far a client is, in the words of istioctl proxy-status, from good to bad.
type ClientState int8

// The values of ClientState.
const (
	InStep   ClientState = iota
	NotSent              // nothing was ever sent for the type
	Stale                // something waits to be sent, or to be acknowledged
	Refused              // the relay does not serve it the type
	Rejected             // the client has rejected what there still is
)

// ClientStates are the words for them, which are stable.
var ClientStates = []string{InStep: "SYNCED", NotSent: "NOT SENT", Stale: "STALE", Refused: "REFUSED", Rejected: "REJECTED"}

func (s ClientState) String() string { return ClientStates[s] }

// MarshalText implements encoding.TextMarshaler.
func (s ClientState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// StateOf is how far a client is with a type. One that was sent nothing may be in step all the same: it came with
// what there is. But a wildcard is answered in any case.
func StateOf(t *session.ClientType) ClientState {
	states := session.SyncStates() // from good to bad
	waits := t.Wildcard || t.Resolved < t.Names || t.Behind > 0
	switch {
	case t.Refused != "":
		return Refused
	case t.Sync == states[len(states)-1]:
		return Rejected
	case t.Nonce == "" && waits:
		return NotSent
	case t.Sync == states[0]:
		return InStep
	}
	return Stale
}

// BehindOf is with how many names a client is behind, as far as that is worth telling. Of what was never sent these are
// also the names that the control plane has not answered.
func BehindOf(t *session.ClientType) int {
	switch StateOf(t) {
	case InStep, Refused:
		return 0
	case NotSent:
		return max(t.Behind, t.Names-t.Resolved)
	}
	return t.Behind
}
