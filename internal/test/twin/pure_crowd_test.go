package twin

import (
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// crowd is the group of types for which there may be no room (NODE-14). Upstream has said there
// all that there is to say.
type crowd struct {
	hub  *fanout.Hub
	room bool
}

// crowdTypes are their properties.
var crowdTypes = cache.Types{
	crowdedType: {EmptyIsWildcard: true},
	fullestType: {EmptyIsWildcard: true, FullState: true},
}

func (r *pureRelay) Room(room bool) { r.crowd.room = room }

func (r *pureRelay) joinCrowd() (session.Membership, *session.End) {
	if !r.crowd.room {
		return session.Membership{Own: true}, &session.End{Reason: session.Overcrowded, Message: "no room"}
	}
	if r.crowd.hub == nil {
		r.crowd.hub = newCrowd(r)
	}
	return session.Membership{Hub: r.crowd.hub, Own: true, Leave: func() {}}, nil
}

// newCrowd is that group, in which somebody wants everything for good.
func newCrowd(r *pureRelay) *fanout.Hub {
	hub := fanout.NewHub(fanout.Config{Name: "crowd", Types: crowdTypes, Bounds: &r.tiny.hub})
	for _, t := range []cache.TypeURL{crowdedType, fullestType} {
		hub.Subscribe(t, fanout.NewSubscriber(func() {})).Delta(append([]string{wildcard}, poolNames...), nil, r.now)
		hub.Changes(r.now, func(fanout.Lane) (c fanout.Carrier, carried bool) { return c, true })
		var all []cache.Received
		for _, name := range roomNames {
			body := &anypb.Any{TypeUrl: string(t), Value: []byte(name)}
			all = append(all, cache.Received{Resource: cache.NewResource(t, &discovery.Resource{Name: name, Version: "1", Resource: body}, cache.Fingerprint{}), Upstream: "1"})
		}
		hub.On(fanout.Lane{Type: t, Wildcard: true}).Asked(nil)
		hub.On(fanout.Lane{Type: t}).Asked(poolNames)
		hub.Apply(fanout.Lane{Type: t, Wildcard: true}, &cache.Update{At: r.now, Stream: 1, First: true, Set: all, Synced: true})
		hub.Apply(fanout.Lane{Type: t}, &cache.Update{At: r.now, Stream: 2, First: true, Set: all, Removed: poolAliases})
	}
	return hub
}
