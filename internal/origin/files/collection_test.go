package files

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	xds "github.com/cncf/xds/go/xds/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// packed is a message in an Any.
func packed(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// collection is a Resource with a list collection of listeners.
func collection(t testing.TB, names ...string) *discovery.Resource {
	t.Helper()
	all := new(listener.ListenerCollection)
	for _, name := range names {
		in := &xds.CollectionEntry_InlineEntry{Version: "7", Resource: packed(t, &listener.Listener{Name: name, StatPrefix: "p"})}
		if len(all.GetEntries()) > 0 {
			in.Name = name // the first has that of its body alone
		}
		all.Entries = append(all.Entries, &xds.CollectionEntry{ResourceSpecifier: &xds.CollectionEntry_InlineEntry_{InlineEntry: in}})
	}
	return &discovery.Resource{Version: "1", Resource: packed(t, all)}
}

// inFormats are a message as the content of files, by their names.
func inFormats(t testing.TB, m proto.Message) map[string]string {
	t.Helper()
	binary, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	text, err := prototext.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"a.pb": string(binary), "a.json": string(asJSON), "a.yaml": string(asJSON), "a.txtpb": string(text)}
}

// TestCollections: each inline entry of a list collection is a resource, in every format, also if the collection has a name,
// and the same as in a DiscoveryResponse (FS-11). Without entries there is none of the type.
func TestCollections(t *testing.T) {
	want := cache.Fingerprint{}.Of(string(cache.Listener), packed(t, &listener.Listener{Name: "b", StatPrefix: "p"}).GetValue(), nil)
	for _, name := range []string{"", "xdstp://a/envoy.config.listener.v3.ListenerCollection/x"} {
		for _, names := range [][]string{{"a", "b"}, {}} {
			of := collection(t, names...)
			of.Name = name
			for file, text := range inFormats(t, of) {
				s, err := Load(write(t, map[string]string{file: text}), options())
				if err != nil {
					t.Errorf("%s: %v", file, err)
					continue
				}
				if got := slices.Sorted(maps.Keys(s.Resources[cache.Listener])); !slices.Equal(got, names) || !slices.Equal(s.Types(), []cache.TypeURL{cache.Listener}) {
					t.Errorf("%s: %q are there, of %q", file, got, s.Types())
				} else if len(names) > 0 && s.Resources[cache.Listener]["b"].Version != want {
					t.Errorf("%s: b has another version", file)
				}
			}
		}
	}
}

// TestCollections_Named: a collection that is a resource of a DiscoveryResponse, under a name of its own, is one resource
// (NAME-14).
func TestCollections_Named(t *testing.T) {
	of := collection(t, "a", "b")
	of.Name = "all"
	for file, text := range inFormats(t, &discovery.DiscoveryResponse{Resources: []*anypb.Any{packed(t, of)}}) {
		s, err := Load(write(t, map[string]string{file: text}), options())
		if err != nil || s.Count() != 1 || s.Resources[cache.TypeURL(of.GetResource().GetTypeUrl())]["all"].Resource == nil {
			t.Errorf("%s: %v, %v", file, s, err)
		}
	}
}

// TestCollections_Nameless: a type whose messages do not hold names has those of the entries.
func TestCollections_Nameless(t *testing.T) {
	const text = `resource: {"@type": type.googleapis.com/envoy.config.endpoint.v3.LbEndpointCollection, entries: [{inline_entry: {name: x,
  resource: {"@type": type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint, endpoint: {hostname: h}}}}]}`
	s, err := Load(write(t, map[string]string{"a.yaml": text}), options())
	if err != nil || s.Resources[cache.LocalityHost]["x"].Resource == nil {
		t.Errorf("%v, %v", s, err)
	}
}

// TestCollections_Mistakes: whatever is wrong with a collection is said with its place.
func TestCollections_Mistakes(t *testing.T) {
	const head = "version: \"1\"\nresource:\n  \"@type\": type.googleapis.com/envoy.config.listener.v3.ListenerCollection\n  entries:\n"
	entry := func(name, typ, body string) string {
		return fmt.Sprintf("  - inline_entry: {name: %s, resource: {\"@type\": type.googleapis.com/envoy.config.%s, name: %s}}\n", name, typ, body)
	}
	a := entry("a", "listener.v3.Listener", "a")
	locator := collection(t, "a")
	all := &listener.ListenerCollection{Entries: []*xds.CollectionEntry{{ResourceSpecifier: &xds.CollectionEntry_Locator{Locator: &xds.ResourceLocator{Id: "x"}}}}}
	locator.Resource = packed(t, all)
	binary, err := proto.Marshal(locator)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ file, text, want string }{
		"a locator":           {"a.yaml", head + a + "  - locator: {id: b}\n", "a.yaml:6:5: is no inline_entry, and nothing follows a locator; write the resource itself, or remove it"},
		"a locator in JSON":   {"a.json", "{\"resource\": {\"@type\": \"type.googleapis.com/envoy.config.listener.v3.ListenerCollection\",\n \"entries\": [{},\n  {}]}}", "a.json:2:14: is no inline_entry"},
		"a locator in binary": {"a.pb", string(binary), "a.pb: entries[0]: is no inline_entry"},
		"an empty entry":      {"a.yaml", head + "  - {}\n", "a.yaml:5:5: is no inline_entry"},
		"another type":        {"a.yaml", head + a + entry("b", "cluster.v3.Cluster", "b"), `a.yaml:6:5: is of type "type.googleapis.com/envoy.config.cluster.v3.Cluster" in a file of type "type.googleapis.com/envoy.config.listener.v3.Listener"`},
		"twice a name":        {"a.yaml", head + a + a, "a.yaml:6:5: \"a\" is at DIR/a.yaml:5:5, too; each Listener has a name of its own"},
		"two names":           {"a.yaml", head + entry("b", "listener.v3.Listener", "a"), `a.yaml:5:5: has the name "b", and its resource the name "a"; give both the same, or the entry none`},
		"no name":             {"a.yaml", head + entry(`""`, "listener.v3.Listener", `""`), "a.yaml:5:5: has no name; give it one"},
		"no resource":         {"a.yaml", head + "  - inline_entry: {name: a}\n", `a.yaml:5:5: is of type ""`},
		"an unknown field":    {"a.yaml", head + "  - inline_entry: {name: a, resource: {\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener, nam: a}}\n", `a.yaml:5:104: unknown field "nam"`},
		"cut short":           {"a.json", `{"version": "1", "resource": {`, "a.json:1:31: ends too early"},
		"a ttl":               {"a.yaml", head + a + "ttl: 1s\n", "a.yaml: has a ttl, which nobody would renew"},
		"no collection":       {"a.yaml", "name: a\nresource: {\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener, name: a}\n", "a.yaml: is a Resource without a list collection; write a DiscoveryResponse with resources"},
		"nothing":             {"a.yaml", "name: a\n", "a.yaml: is a Resource without a list collection"},
		"clusters":            {"a.yaml", "resource: {\"@type\": type.googleapis.com/envoy.config.cluster.v3.ClusterCollection}\n", "a.yaml: is a ClusterCollection, which has room for one entry only; write a DiscoveryResponse with resources"},
		"in a response":       {"a.yaml", "resources: [{\"@type\": type.googleapis.com/envoy.config.listener.v3.ListenerCollection}]\n", "a.yaml:1:13: has no name"},
		"neither":             {"a.yaml", "\"@type\": type.googleapis.com/envoy.config.listener.v3.Listener\nname: a\n", `a.yaml:1:1: unknown field "@type"`},
	} {
		dir := write(t, map[string]string{c.file: c.text})
		if _, err := Load(dir, options()); err == nil || !strings.HasPrefix(strings.ReplaceAll(err.Error(), dir, "DIR"), "DIR/"+c.want) {
			t.Errorf("%s: %v\nis not\n%s", name, err, c.want)
		}
	}
}
