package downstream

import (
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// oneGroup has all clients in one group.
type oneGroup struct{ hub *fanout.Hub }

func (oneGroup) Key(session.Peer, *core.Node) (string, *session.End) { return "", nil }
func (g oneGroup) Join(session.Peer, *core.Node, cache.TypeURL) (session.Membership, *session.End) {
	return session.Membership{Hub: g.hub, Leave: func() {}}, nil
}

var epoch = time.Unix(1, 0)
