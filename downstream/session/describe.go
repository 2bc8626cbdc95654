package session

import (
	"slices"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// ClientType describes one type of a stream.
type ClientType struct {
	Type cache.TypeURL `json:"type"`
	// Group is the name of the group that serves the type, as in logs, and "none" if the type is
	// refused.
	Group string `json:"group,omitempty"`
	// Refused is why no group serves the type, or empty (NODE-14).
	Refused  string `json:"refused,omitempty"`
	Wildcard bool   `json:"wildcard"`
	Names    int    `json:"names"`
	// Resolved is the number of names that are known to exist or not to exist.
	Resolved int `json:"resolved"`
	// Sync is how far the client is.
	Sync Sync `json:"sync"`
	// Behind is how many resources and removals the client lacks, has not acknowledged or has
	// rejected, and Since the time from which on it has not been in step; zero if it is.
	Behind int       `json:"behind,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// LastSent is when the last response was sent, and LastAck when the client last accepted one.
	LastSent time.Time `json:"last_sent,omitzero"`
	LastAck  time.Time `json:"last_ack,omitzero"`
	// Version is the version that the client last accepted.
	Version string `json:"version,omitempty"`
	// Nonce is that of the last response.
	Nonce string `json:"nonce,omitempty"`
	// Nack is the client's message, if its last answer to a response was a rejection, or the rejection still stands. Nacked is
	// the number of resources and removals in that response, and NackedNames are the first of
	// them.
	Nack        string    `json:"nack,omitempty"`
	NackedAt    time.Time `json:"nacked_at,omitzero"`
	Nacked      int       `json:"nacked,omitempty"`
	NackedNames []string  `json:"nacked_names,omitempty"`
}

// Sync is how far a client is with a type. It is a closed set, fit for a metric
// label.
type Sync string

// The values of Sync, from good to bad.
const (
	syncedSync  Sync = "synced"  // everything was sent and accepted
	unsentSync  Sync = "unsent"  // a response waits to be sent
	unackedSync Sync = "unacked" // the client owes an ACK
	nackedSync  Sync = "nacked"  // the client has rejected what there still is
)

// SyncStates are the values of Sync, from good to bad.
func SyncStates() []Sync { return []Sync{syncedSync, unsentSync, unackedSync, nackedSync} }

// Node is the client's node, or nil before the first request.
func (s *Session) Node() *core.Node { return s.node }

// Types returns the types that the client has asked for, in the order of ORDER-2.
func (s *Session) Types() []cache.TypeURL {
	types := make([]cache.TypeURL, 0, len(s.states))
	for _, st := range s.states {
		types = append(types, st.base().url)
	}
	return types
}

// Served returns the Hubs of the groups that serve the stream, and its types that no group
// serves.
func (s *Session) Served() (hubs []*fanout.Hub, refused []RefusedType) {
	for _, st := range s.states {
		x := st.base()
		if x.refusal != nil {
			refused = append(refused, RefusedType{x.url.Short(), x.refusal.reason, x.refusal.notice})
		} else if !slices.Contains(hubs, x.group.Hub) {
			hubs = append(hubs, x.group.Hub)
		}
	}
	return hubs, refused
}

// ServedBy reports whether a group serves a type of the stream.
func (s *Session) ServedBy(hub *fanout.Hub, t cache.TypeURL) bool {
	st := s.find(t)
	return st != nil && st.base().refusal == nil && st.base().group.Hub == hub
}

// GroupOf is the name of the group that serves a type; empty: the client has not asked for the type.
func (s *Session) GroupOf(t cache.TypeURL) string {
	if st := s.find(t); st != nil {
		return st.base().group.Hub.Name()
	}
	return ""
}

// Sync returns the worst state of the stream's types.
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
	t := ClientType{Type: x.url, Group: x.group.Hub.Name(), Nonce: x.lastNonce, Sync: x.sync()}
	t.LastSent, t.LastAck = clock(x.times.sent), clock(x.times.acked)
	if !x.group.Hub.Properties(x.url).Secret { // whoever can guess a weak secret could check the guess
		t.Version = x.accepted
	}
	x.sub.Read(func(v fanout.View) {
		if t.Sync != syncedSync {
			t.Behind, t.Since = x.behind(v)
		}
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
	if t.Sync == nackedSync {
		t.Nack, t.NackedAt, t.Nacked, t.NackedNames = x.rejected.Message, x.rejected.At, x.rejected.Count, x.rejected.First
	}
	return t
}

// clock is a time that is kept as Unix time in ns, or the zero time for 0.
func clock(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

func (x *exchange) sync() Sync {
	switch {
	case x.rejects():
		return nackedSync
	case len(x.unacked) > 0:
		return unackedSync
	case x.due():
		return unsentSync
	}
	return syncedSync
}
