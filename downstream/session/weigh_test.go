package session

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

func wireOf(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// empties is a message with nothing but empty elements in a field, two bytes each.
func empties(field protowire.Number, size int) []byte {
	element := protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), nil)
	return []byte(strings.Repeat(string(element), size/len(element)))
}

// nodeOfEmpties is a node whose metadata is a list of empty values.
func nodeOfEmpties(t *testing.T, size int) *core.Node {
	t.Helper()
	list := new(structpb.ListValue)
	if err := proto.Unmarshal(empties(1, size), list); err != nil {
		t.Fatal(err)
	}
	return &core.Node{Id: "n", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"m": structpb.NewListValue(list)}}}
}

func nodeOfText(size int) *core.Node {
	return &core.Node{Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"m": structpb.NewStringValue(strings.Repeat("m", size))}}}
}

// nodeOfNested is a node whose metadata is a list in a list, and so on.
func nodeOfNested(depth int) *core.Node {
	v := structpb.NewNullValue()
	for range depth {
		v = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
	}
	return &core.Node{Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"m": v}}}
}

// TestWeigh: what would take more memory than its bytes is refused in wire form, and says what to set.
func TestWeigh(t *testing.T) {
	const limit = 1 << 20
	names := make([]string, limit/leastWeight)
	versions := make(map[string]string)
	for i := range names {
		names[i] = fmt.Sprint(i)
		versions[names[i]] = "1"
	}
	for _, tt := range []struct {
		what string
		in   proto.Message
		want string // "": it is accepted
	}{
		{"nothing", &discovery.DeltaDiscoveryRequest{}, ""},
		{"a node of some size", &discovery.DeltaDiscoveryRequest{Node: nodeOfText(200 << 10)}, ""},
		{"a node of empty values", &discovery.DeltaDiscoveryRequest{Node: nodeOfEmpties(t, 100<<10)}, "node of 102"},
		{"values in each other", &discovery.DiscoveryRequest{Node: nodeOfNested(100)}, "more than 64 deep"},
		{"a node that is too large", &discovery.DeltaDiscoveryRequest{Node: nodeOfText(300 << 10)}, "node of 307"},
		{"a node that is too large, in SotW", &discovery.DiscoveryRequest{Node: nodeOfText(300 << 10)}, "node of 307"},
		{"a long type", &discovery.DeltaDiscoveryRequest{TypeUrl: strings.Repeat("t", 257)}, "type_url of 257 bytes"},
		{"a long type, in SotW", &discovery.DiscoveryRequest{TypeUrl: strings.Repeat("t", 257)}, "type_url of 257 bytes"},
		{"a type of some length", &discovery.DiscoveryRequest{TypeUrl: strings.Repeat("t", 256)}, ""},
		{"names", &discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: names}, ""},
		{"a name too many", &discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: append(names, "a")}, "raise downstream.max_request_bytes"},
		{"a name too many, in SotW", &discovery.DiscoveryRequest{ResourceNames: append(names, "a")}, "raise downstream.max_request_bytes"},
		{"versions", &discovery.DeltaDiscoveryRequest{InitialResourceVersions: versions}, ""},
		{"names and versions", &discovery.DeltaDiscoveryRequest{InitialResourceVersions: versions, ResourceNamesSubscribe: names}, "raise downstream.max_request_bytes"},
		{"a NACK", &discovery.DeltaDiscoveryRequest{ErrorDetail: &statuspb.Status{Message: strings.Repeat("m", 1<<19)}}, ""},
		{"a NACK with many details", &discovery.DeltaDiscoveryRequest{ErrorDetail: &statuspb.Status{Details: make([]*anypb.Any, limit/leastWeight)}}, "raise downstream.max_request_bytes"},
	} {
		_, delta := tt.in.(*discovery.DeltaDiscoveryRequest)
		end := Weigh(wireOf(t, tt.in), delta, limit)
		if tt.want == "" && end != nil || tt.want != "" && (end == nil || end.Reason != OverLimit || !strings.Contains(end.Message, tt.want)) {
			t.Errorf("%s: %+v, want %q", tt.what, end, tt.want)
		}
	}
	for _, b := range [][]byte{{0xff}, {0x0a, 0x05, 1}} {
		if end := Weigh(b, true, limit); end != nil {
			t.Errorf("%x: %v; the decoder says better what is wrong", b, end)
		}
	}
	for _, groups := range [][]byte{{0x0b, 0x0c}, bytes.Repeat([]byte{0x0b}, 16<<10)} { // a whole one, and each in the one before
		if end := Weigh(groups, true, limit); end == nil || !strings.Contains(end.Message, "groups") {
			t.Errorf("%d bytes of groups: %+v", len(groups), end)
		}
	}
	two := append(wireOf(t, &discovery.DeltaDiscoveryRequest{Node: nodeOfText(200 << 10)}), wireOf(t, &discovery.DeltaDiscoveryRequest{Node: nodeOfText(200 << 10)})...)
	if end := Weigh(two, true, limit); end == nil || !strings.Contains(end.Message, "node of") {
		t.Errorf("a node in two parts: %+v", end)
	}
}

// TestWhatIsAcceptedTakesLittle: whatever passes takes no more memory, as a message, than a few times the limit.
func TestWhatIsAcceptedTakesLittle(t *testing.T) {
	const limit = 4 << 20
	distinct := func(field protowire.Number, element func(i int) []byte) (b []byte) {
		for i := range limit/leastWeight - 8 {
			b = protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), element(i))
		}
		return b
	}
	for what, in := range map[string][]byte{
		"names":    distinct(3, func(i int) []byte { return fmt.Appendf(nil, "%x", i) }),
		"versions": distinct(5, func(i int) []byte { return append([]byte{0x0a, 5}, fmt.Sprintf("%05x", i)...) }),
		"locators": distinct(8, func(int) []byte { return nil }),
		"details":  wireOf(t, &discovery.DeltaDiscoveryRequest{ErrorDetail: &statuspb.Status{Details: make([]*anypb.Any, limit/leastWeight/2)}}),
		"node":     wireOf(t, &discovery.DeltaDiscoveryRequest{Node: nodeOfEmpties(t, 31<<10)}),
	} {
		if end := Weigh(in, true, limit); end != nil {
			t.Errorf("%s: %v", what, end)
			continue
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := proto.Unmarshal(in, new(discovery.DeltaDiscoveryRequest)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		runtime.ReadMemStats(&after)
		took := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d bytes allocate %d", what, len(in), took)
		if took > 6*limit {
			t.Errorf("%s: %d bytes allocate %d, where the limit is %d", what, len(in), took, limit)
		}
	}
}
