package session

import (
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
)

// deltaWriter composes Delta requests. An ACK or NACK never changes a subscription,
// and a change of subscriptions never carries a nonce (UP-5).
type deltaWriter struct{ stream *streamState }

func (w deltaWriter) acknowledge(v ack, _ time.Time) proto.Message {
	return &discovery.DeltaDiscoveryRequest{
		TypeUrl: string(v.typeURL), ResponseNonce: v.nonce, ErrorDetail: v.status(),
	}
}

func (w deltaWriter) opening(l *laneState, names []string, here []cache.Held, r *budget) (proto.Message, opening) {
	o := fit(r, names, here)
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(l.lane.Type), InitialResourceVersions: o.shown}
	if !w.stream.used[l.lane.Type].legacy {
		req.ResourceNamesSubscribe = o.listed
	}
	return req, o
}

func (w deltaWriter) change(l *laneState, r *budget, now time.Time) proto.Message {
	r.most = w.stream.config.bounds().Part
	subscribe, unsubscribe := w.stream.take(l, r, now)
	return &discovery.DeltaDiscoveryRequest{
		TypeUrl: string(l.lane.Type), ResourceNamesSubscribe: subscribe, ResourceNamesUnsubscribe: unsubscribe,
	}
}
