package downstream

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Client describes one stream, for people and for the admin endpoint.
type Client struct {
	Stream   uint64       `json:"stream"`
	Node     string       `json:"node"`
	Cluster  string       `json:"cluster,omitempty"`
	Group    string       `json:"group,omitempty"`
	Peer     string       `json:"peer"`
	Identity string       `json:"identity,omitempty"`
	Protocol string       `json:"protocol"`
	Since    time.Time    `json:"since"`
	Types    []ClientType `json:"types"`
}

// ClientType describes what a stream has of one type.
type ClientType struct {
	Type     cache.TypeURL `json:"type"`
	Wildcard bool          `json:"wildcard"`
	Names    int           `json:"names"`
	// Resolved is how many of the names are known to exist or not to.
	Resolved int `json:"resolved"`
	// Sync is "synced", "pending" (something is to be sent), "stale" (an ACK is
	// owed) or "nacked".
	Sync string `json:"sync"`
	// Nonce is the last response's.
	Nonce string `json:"nonce,omitempty"`
	// Nack is the client's message, if its last verdict was a rejection.
	Nack string `json:"nack,omitempty"`
}

func (st *stream) describe() Client {
	st.mu.Lock()
	defer st.mu.Unlock()
	c := Client{
		Stream: st.id, Peer: st.peer.Address, Identity: st.peer.Identity,
		Protocol: st.protocol(), Since: st.since,
		Node: st.session.node.GetId(), Cluster: st.session.node.GetCluster(), Group: st.session.key,
		Types: []ClientType{},
	}
	for _, state := range st.session.states {
		c.Types = append(c.Types, state.base().describe())
	}
	return c
}

func (x *exchange) describe() ClientType {
	t := ClientType{Type: x.url, Nonce: x.lastNonce, Sync: "synced"}
	x.sub.Read(func(v fanout.View) {
		t.Wildcard, _ = v.Wildcard()
		t.Names = len(v.Names())
		for _, id := range v.Names() {
			if v.Answer(id).State != cache.Unknown {
				t.Resolved++
			}
		}
	})
	switch {
	case x.rejected != nil && x.rejected.To > x.ackedTo:
		t.Sync, t.Nack = "nacked", x.rejected.Message
	case len(x.unacked) > 0:
		t.Sync = "stale"
	case x.due():
		t.Sync = "pending"
	}
	return t
}
