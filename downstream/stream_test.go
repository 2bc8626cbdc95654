package downstream

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestRequestsThatAreNoMessages: a string that is not UTF-8 ends its stream, and goes no
// further: a request with it could not be sent upstream.
func TestRequestsThatAreNoMessages(t *testing.T) {
	hub := fanout.NewHub(fanout.Config{Linger: time.Second})
	const typeField, nonceField = 2, 6 // of a DeltaDiscoveryRequest
	raw := protowire.AppendString(protowire.AppendTag(nil, typeField, protowire.BytesType), "\xff")
	raw = protowire.AppendString(protowire.AppendTag(raw, nonceField, protowire.BytesType), "n")
	st := oneStream(hub, true)
	if !st.in.bare.Read(raw, true) {
		t.Fatal("it is not bare")
	}
	if _, _, _, end := st.takeIn(); end == nil || end.Reason != session.BadRequest || !strings.Contains(end.Message, "UTF-8") {
		t.Errorf("the stream ends with %v", end)
	}
	if lanes := hub.Lanes(); len(lanes) > 0 {
		t.Errorf("upstream is asked for %v", lanes)
	}
}

// oneStream is a stream without a connection.
func oneStream(hub *fanout.Hub, delta bool) *stream {
	c := &session.Config{AckTimeout: time.Minute, MaxName: 100, MaxNames: 100}
	kind := session.Stream{Delta: delta}
	return &stream{kind: kind, session: session.New(c, kind, session.Peer{}, oneGroup{hub}, session.NewClusterDeliveries(), func() {})}
}
