package session

import (
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// ClientType describes what a stream has of one type.
type ClientType struct {
	Type cache.TypeURL `json:"type"`
	// Group is the name, as in logs, of the group that serves it; empty: the
	// default one; "none": it is refused.
	Group string `json:"group,omitempty"`
	// Refused is why no group does; empty: one does (NODE-14).
	Refused  string `json:"refused,omitempty"`
	Wildcard bool   `json:"wildcard"`
	Names    int    `json:"names"`
	// Resolved is how many of the names are known to exist or not to.
	Resolved int `json:"resolved"`
	// Sync is how far the client is.
	Sync Sync `json:"sync"`
	// Nonce is the last response's.
	Nonce string `json:"nonce,omitempty"`
	// Nack is the client's message, if its last verdict was a rejection; Nacked is how many
	// resources and removals the response carried, and NackedNames are the first of them.
	Nack        string   `json:"nack,omitempty"`
	Nacked      int      `json:"nacked,omitempty"`
	NackedNames []string `json:"nacked_names,omitempty"`
}

// Sync is how far a client is with a type. It is a closed set, fit for a metric
// label.
type Sync string

// The values of Sync, from good to bad.
const (
	syncedSync  Sync = "synced"  // told everything, and has accepted it
	unsentSync  Sync = "unsent"  // something is to be sent
	unackedSync Sync = "unacked" // an ACK is owed
	nackedSync  Sync = "nacked"  // the last verdict was a rejection
)

// SyncStates are the values of Sync, from good to bad.
func SyncStates() []Sync { return []Sync{syncedSync, unsentSync, unackedSync, nackedSync} }

// Node is the client's node; nil: it has not said anything yet.
func (s *Session) Node() *core.Node { return s.node }

// Served are the groups that serve the stream, by their Hubs, and which of its types none does.
func (s *Session) Served() (hubs []*fanout.Hub, refused []RefusedType) {
	for _, st := range s.states {
		x := st.base()
		if x.refusal != nil {
			refused = append(refused, RefusedType{x.url.Short(), x.refusal.reason, x.refusal.told()})
		} else if !slices.Contains(hubs, x.hub) {
			hubs = append(hubs, x.hub)
		}
	}
	return hubs, refused
}

// Sync is the worst of the stream's types.
func (s *Session) Sync() Sync {
	states := SyncStates()
	worst := 0
	for _, st := range s.states {
		worst = max(worst, slices.Index(states, st.base().sync()))
	}
	return states[worst]
}

// Describe describes the stream's types.
func (s *Session) Describe() []ClientType {
	types := make([]ClientType, 0, len(s.states))
	for _, st := range s.states {
		types = append(types, st.base().describe())
	}
	return types
}

func (x *exchange) describe() ClientType {
	t := ClientType{Type: x.url, Group: x.hub.Name(), Nonce: x.lastNonce}
	x.sub.Read(func(v fanout.View) {
		t.Wildcard, _ = v.Wildcard()
		t.Names = len(v.Names())
		for _, id := range v.Names() {
			if v.Answer(id).State != cache.Unknown {
				t.Resolved++
			}
		}
	})
	if x.refusal != nil {
		t.Refused = x.refusal.status.GetMessage()
	}
	if t.Sync = x.sync(); t.Sync == nackedSync {
		t.Nack, t.Nacked, t.NackedNames = x.rejected.Message, x.rejected.Count, x.rejected.First
	}
	return t
}

func (x *exchange) sync() Sync {
	switch {
	case x.rejected != nil && x.rejected.To > x.ackedTo:
		return nackedSync
	case len(x.unacked) > 0:
		return unackedSync
	case x.due():
		return unsentSync
	}
	return syncedSync
}
