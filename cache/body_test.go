package cache

import (
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// TestNamesAreReadFromBodies: the last occurrence of the name field, from a body that
// is sound as far as its top level goes (TRANSLATE-2, TRANSLATE-3).
func TestNamesAreReadFromBodies(t *testing.T) {
	named := func(name string, more ...byte) []byte {
		b := protowire.AppendTag(nil, 1, protowire.BytesType)
		return append(protowire.AppendString(b, name), more...)
	}
	sound, err := proto.Marshal(&cluster.Cluster{AltStatName: "s", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what string
		url  TypeURL
		body []byte
		name string
		ok   bool
	}{
		{"a real message", Cluster, sound, "a", true},
		{"a type nobody knows", "strange", named("x"), "x", true},
		{"the last one counts", Endpoint, named("x", named("y")...), "y", true},
		{"the last one is empty", Endpoint, named("x", named("")...), "", false},
		{"another kind of field 1", "strange", []byte{0x08, 0x01}, "", false},
		{"field 1 of two kinds", "strange", named("x", 0x08, 0x01), "x", true},
		{"no field", Cluster, nil, "", false},
		{"not UTF-8", Cluster, named("\xff"), "", false},
		{"cut off behind the name", Cluster, named("x", 0x12, 0x05, 'a'), "", false},
		{"not a message", Cluster, []byte{0xff, 0xff}, "", false},
		{"a type that holds no name", VirtualHost, named("x"), "", false},
		{"another one", LocalityHost, named("x"), "", false},
	} {
		if name, ok := BodyName(tt.url, tt.body); name != tt.name && ok || ok != tt.ok {
			t.Errorf("%s: %q %v, want %q %v", tt.what, name, ok, tt.name, tt.ok)
		}
	}
}
