package session

import (
	"fmt"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/hop"
)

// greet takes in the part that all requests have: the node (NODE-1 to NODE-3) and the type
// (DOWN-DELTA-1).
func (s *Session) greet(node *core.Node, typeURL string, now time.Time) (t cache.TypeURL, end *End) {
	switch {
	case len(typeURL) > maxTypeURL:
		end = typeTooLong(len(typeURL))
	case len(node.GetId()) > s.config.MaxName:
		end = tooLong("node id", node.GetId(), s.config.MaxName)
	case proto.Size(node) > maxNode: // the node is kept as long as the stream
		end = nodeTooLarge(proto.Size(node))
	case s.ofNode == nil:
		end = s.meet(node, now)
	case node != nil:
		end = s.meetAgain(node)
	}
	if end != nil {
		return "", end
	}
	return s.typeOf(cache.TypeURL(typeURL))
}

// meet takes in the node of the first request, which decides the client's groups.
func (s *Session) meet(node *core.Node, now time.Time) *End {
	if loop := hop.Loop(s.peer.Via, s.peer.Way(), s.config.Hop); loop != "" {
		return &End{Looped, loop}
	}
	if end := CannotGoUp(s.peer.Headers); end != nil {
		return end
	}
	key, end := s.groups.Key(s.peer, node)
	if end != nil {
		return end
	}
	s.node, s.key, s.outage.began = node, key, now
	s.subscriber.TakesTTL = !s.kind.V2 && takesTTL(node, s.kind.Delta)
	s.ofNode = s.clusterDeliveries.join(node.GetId())
	return nil
}

// meetAgain takes in the node of a later request, which must belong to the same groups.
func (s *Session) meetAgain(node *core.Node) *End {
	key, end := s.groups.Key(s.peer, node)
	if end != nil {
		return end
	}
	if key != s.key {
		s.key, _ = s.groups.Key(s.peer, s.node) // rules may have changed
	}
	if key != s.key {
		return &End{NodeChanged, "the node of a later request belongs to another group than the first one's; open a new stream for another node"}
	}
	s.renew(node)
	return nil
}

// typeOf returns the type of a request. On a stream of one type, a request need not name it, and may name it by the
// URL of either API (V2-2).
func (s *Session) typeOf(t cache.TypeURL) (cache.TypeURL, *End) {
	switch {
	case s.kind.Type == "" && t == "":
		return "", &End{BadRequest, "type_url is empty; on an aggregated stream every request must name its type"}
	case s.kind.Type != "" && t == "":
		return s.kind.Type, nil
	case s.kind.Type != "" && t.V3() != s.kind.Type.V3():
		return "", &End{BadRequest, fmt.Sprintf("type_url %q on the method for %q; use the method of that type, or the aggregated one", t, s.kind.Type)}
	}
	return t, nil
}

// renew takes in a change of dynamic parameters, the only part of a node that may change
// (NODE-2).
func (s *Session) renew(node *core.Node) {
	parameters := func(of *core.Node) *core.Node { return &core.Node{DynamicParameters: of.GetDynamicParameters()} }
	if s.node == nil || proto.Equal(parameters(s.node), parameters(node)) {
		return
	}
	changed := proto.CloneOf(s.node) // the old node may be in use elsewhere
	changed.DynamicParameters = node.GetDynamicParameters()
	s.node = changed
	for _, st := range s.states {
		if renew := st.base().group.Renew; renew != nil {
			renew(changed)
		}
	}
}
