package upstream

import (
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// deltaWriter composes Delta requests. An ACK or NACK never changes a subscription,
// and a change of subscriptions never carries a nonce (UP-5).
type deltaWriter struct{ stream *streamState }

func (w deltaWriter) verdict(v verdict, _ time.Time) proto.Message {
	return &discovery.DeltaDiscoveryRequest{
		TypeUrl: string(v.typeURL), ResponseNonce: v.nonce, ErrorDetail: v.status(),
	}
}

func (w deltaWriter) opening(l *laneState, names []string, versions map[string]string, _ time.Time) proto.Message {
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(l.lane.Type), InitialResourceVersions: versions}
	if !w.stream.used[l.lane.Type].legacy {
		req.ResourceNamesSubscribe = names
	}
	return req
}

func (w deltaWriter) change(l *laneState, now time.Time) proto.Message {
	subscribe, unsubscribe := w.stream.take(l, now)
	return &discovery.DeltaDiscoveryRequest{
		TypeUrl: string(l.lane.Type), ResourceNamesSubscribe: subscribe, ResourceNamesUnsubscribe: unsubscribe,
	}
}
