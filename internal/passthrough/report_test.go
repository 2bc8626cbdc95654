package passthrough

import (
	"bytes"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func wire(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzNodeIn: whatever a report holds, its node is the one that protobuf finds there, and so the control plane, or it is
// refused.
func FuzzNodeIn(f *testing.F) {
	node := &core.Node{Id: "a", Cluster: "b", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewStringValue("y")}}}
	stats := &lrs.LoadStatsRequest{ClusterStats: []*endpoint.ClusterStats{{ClusterName: "c", TotalDroppedRequests: 1}}}
	whole := wire(f, &lrs.LoadStatsRequest{Node: node})
	f.Add([]byte{})
	f.Add(whole)
	f.Add(append(wire(f, stats), whole...))
	f.Add(append(whole, wire(f, &lrs.LoadStatsRequest{Node: &core.Node{Id: "other"}})...)) // in parts: the last one counts
	f.Add([]byte{0x08, 1})                                                                 // no message under the number
	f.Add(whole[:len(whole)-1])
	f.Fuzz(func(t *testing.T, report []byte) {
		before := bytes.Clone(report)
		want := new(lrs.LoadStatsRequest)
		bad := proto.Unmarshal(report, want)
		found, err := NodeIn(report)
		if !bytes.Equal(report, before) {
			t.Fatal("the report is not what it was")
		}
		if bad != nil {
			return // the control plane refuses it, too
		}
		if err != nil {
			t.Fatalf("%x is refused: %v", report, err)
		}
		got, err := ReadNode(found)
		switch {
		case err != nil:
			t.Fatalf("the node of %x is refused: %v", report, err)
		case (found == nil) != (want.Node == nil):
			t.Fatalf("%x: found a node: %v, there is one: %v", report, found != nil, want.Node != nil)
		case want.Node != nil && !proto.Equal(got, want.Node):
			t.Fatalf("%x: the node is %v, want %v", report, got, want.Node)
		}
	})
}

// TestMessageIsHandedOnOnce: gRPC frees what it has sent, and nothing else is left of it.
func TestMessageIsHandedOnOnce(t *testing.T) {
	for _, parts := range [][]string{{"ab"}, {"a", "b"}} {
		var data mem.BufferSlice
		for _, part := range parts {
			data = append(data, mem.SliceBuffer(part))
		}
		m := new(Message)
		if err := (Codec{}).Unmarshal(data, m); err != nil {
			t.Fatal(err)
		}
		if m.Len() != 2 || string(m.Bytes()) != "ab" {
			t.Errorf("%q: %d bytes %q", parts, m.Len(), m.Bytes())
		}
		handed, err := Codec{}.Marshal(m)
		if err != nil || string(handed.Materialize()) != "ab" || m.Len() != 0 {
			t.Errorf("%q: %q was handed on, and %d bytes are left (%v)", parts, handed.Materialize(), m.Len(), err)
		}
	}
}
