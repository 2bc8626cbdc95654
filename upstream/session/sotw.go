package session

import (
	"maps"
	"slices"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// sotwType is what a SotW stream remembers of a type.
type sotwType struct {
	// nonce is that of the latest response, version the last one accepted.
	nonce, version string
	// rejected tells the response that was rejected last from others, and nackWait
	// is how long its next NACK waits (NACK-7).
	rejected string
	nackWait time.Duration
}

// sotwWriter composes SotW requests. Each lists all names of the type, sorted, also
// when it is an ACK or NACK: some servers read no other (TRANSLATE-4).
//
// The wildcard and the names of a type are on separate streams, as they are with
// Delta (TRANSLATE-11, WILD-13): there is no option to ask for both at once, because
// nobody could then tell members from what has a name.
type sotwWriter struct {
	stream *streamState
	// accepted outlives the stream.
	accepted map[fanout.Lane]acceptance
}

// acceptance is the last response of a lane that was ACKed, and what the ACK named. It outlives the
// stream: if nothing has changed, the next one begins with its version (TRANSLATE-8).
type acceptance struct {
	origin  cache.Origin
	version string
	names   []string
	held    int // resources that the lane had
}

func (w sotwWriter) request(t cache.TypeURL, names []string, version string) *discovery.DiscoveryRequest {
	req := &discovery.DiscoveryRequest{TypeUrl: string(t), VersionInfo: version, ResourceNames: names}
	if u := w.stream.used[t]; u != nil {
		req.ResponseNonce = u.sotw.nonce
		if u.legacy {
			req.ResourceNames = nil
		}
	}
	return req
}

// names are those of a type as they are to be now.
func (w sotwWriter) names(l *laneState, now time.Time) []string {
	if l.changed() {
		w.stream.take(l, unlimited(), now)
	}
	return slices.Sorted(maps.Keys(l.sent))
}

func (w sotwWriter) opening(l *laneState, names []string, here []cache.Held, _ *budget) (proto.Message, opening) {
	u := w.stream.used[l.lane.Type]
	a, ok := w.accepted[l.lane]
	first := ok && u.sotw.nonce == ""
	if first && a.repeats(w.stream.origin, names) && w.intact(l.lane, a, here) {
		u.sotw.version = a.version
	}
	return w.request(l.lane.Type, names, u.sotw.version), opening{listed: names}
}

// repeats reports whether a request asks the same origin for the same names.
func (a acceptance) repeats(origin cache.Origin, names []string) bool {
	return a.origin == origin && slices.Equal(a.names, names)
}

// intact: the lane has all that it had when the version was accepted.
func (w sotwWriter) intact(lane fanout.Lane, a acceptance, here []cache.Held) bool {
	if lane.Wildcard {
		return len(here) == a.held && w.stream.hub.Of(lane.Type).Synced()
	}
	has := make(map[string]bool, len(here))
	for _, h := range here {
		has[h.Name] = true
	}
	return !slices.ContainsFunc(a.names, func(name string) bool { return !has[name] })
}

func (w sotwWriter) change(l *laneState, _ *budget, now time.Time) proto.Message {
	return w.request(l.lane.Type, w.names(l, now), w.stream.used[l.lane.Type].sotw.version)
}

func (w sotwWriter) acknowledge(v ack, now time.Time) proto.Message {
	var names []string
	if l := w.stream.lanes[v.typeURL]; l.asked() {
		names = w.names(l, now)
		if v.nack == "" {
			w.accepted[l.lane] = acceptance{w.stream.origin, v.version, names, w.stream.hub.On(l.lane).Len()}
		}
	}
	req := w.request(v.typeURL, names, v.version)
	req.ResponseNonce, req.ErrorDetail = v.nonce, v.status()
	return req
}

// The wait before the NACK of a response that was rejected before (NACK-7).
const (
	nackWaitMin = time.Second
	nackWaitMax = 30 * time.Second
)

// judge completes the ACK or NACK of a SotW response.
func (s *streamState) judge(v *ack, version string, now time.Time) {
	t := &s.used[v.typeURL].sotw
	t.nonce = v.nonce
	if v.nack == "" {
		t.version, t.rejected, t.nackWait = version, "", 0
	}
	v.version = t.version
	rejected := version + "\x00" + v.nack
	switch {
	case v.nack != "" && rejected == t.rejected:
		t.nackWait = min(max(2*t.nackWait, nackWaitMin), nackWaitMax)
		v.notBefore = now.Add(t.nackWait)
		return
	case v.nack != "":
		t.rejected, t.nackWait = rejected, 0
	}
	for i := range s.acks { // something new came: what is held up is let go
		if s.acks[i].typeURL == v.typeURL {
			s.acks[i].notBefore = time.Time{}
		}
	}
}
