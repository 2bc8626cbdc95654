package xdsjson

import (
	"bytes"
	"strings"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/internal/readable"
)

// field is a message as a field of a DiscoveryResponse.
func field(t *testing.T, m proto.Message) []byte {
	t.Helper()
	body, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	data, err := proto.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), data)
}

func writer(t *testing.T, protoNames bool) *Writer {
	t.Helper()
	set, err := readable.Load()
	if err != nil {
		t.Fatal(err)
	}
	return NewWriter(set, protoNames)
}

// TestResponse: a response is read by protojson as it was, in both spellings.
func TestResponse(t *testing.T) {
	inner, err := anypb.New(&cluster.Cluster{Name: "inner"})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster.Cluster{Name: `"c"`, ConnectTimeout: durationpb.New(1500e6), TypedExtensionProtocolOptions: map[string]*anypb.Any{"x": inner}}
	for _, protoNames := range []bool{false, true} {
		w := writer(t, protoNames)
		text, err := w.Resource(field(t, c), true)
		if err != nil {
			t.Fatal(err)
		}
		whole := bytes.Join(w.Response(Head{"1:1:ab", "type.googleapis.com/envoy.config.cluster.v3.Cluster", "n<1", "relay"}, [][]byte{text, text}), nil)
		resp := new(discovery.DiscoveryResponse)
		if err := protojson.Unmarshal(whole, resp); err != nil {
			t.Fatalf("%s: %v", whole, err)
		}
		got := new(cluster.Cluster)
		if len(resp.GetResources()) != 2 || resp.GetVersionInfo() != "1:1:ab" || resp.GetNonce() != "n<1" || resp.GetControlPlane().GetIdentifier() != "relay" {
			t.Errorf("it is %s", whole)
		} else if err := resp.GetResources()[1].UnmarshalTo(got); err != nil || !proto.Equal(got, c) {
			t.Errorf("got %v, %v", got, err)
		}
		if plain := strings.Contains(string(whole), `"version_info"`) && strings.Contains(string(whole), `"connect_timeout"`); plain != protoNames {
			t.Errorf("proto names %v: %s", protoNames, whole)
		}
	}
}

// TestUnknownType: a message that nobody knows, however deep, is named and not left out (REST-3).
func TestUnknownType(t *testing.T) {
	c := &cluster.Cluster{Name: "c", TypedExtensionProtocolOptions: map[string]*anypb.Any{"x": {TypeUrl: "type.googleapis.com/made.Up", Value: []byte{8, 1}}}}
	if _, err := writer(t, false).Resource(field(t, c), true); err == nil || !strings.Contains(err.Error(), "made.Up") {
		t.Errorf("got %v", err)
	}
	if _, err := writer(t, false).Resource(field(t, c)[:3], false); err == nil {
		t.Error("half a resource is written")
	}
}

// TestRemembers: a resource is written once, and the ones of long ago are forgotten.
func TestRemembers(t *testing.T) {
	w := writer(t, false)
	body := field(t, &cluster.Cluster{Name: "c"})
	first, _ := w.Resource(body, true)
	second, _ := w.Resource(body, true)
	if &first[0] != &second[0] {
		t.Error("it is written twice")
	}
	for range 3 {
		w.size = kept
		_, _ = w.Resource(field(t, &cluster.Cluster{Name: "d"}), true)
	}
	if third, _ := w.Resource(body, true); &third[0] == &first[0] || !bytes.Equal(third, first) {
		t.Error("it is remembered for ever, or written otherwise")
	}
}
