package files

import (
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// fuzz reads whatever comes in a format: it never panics, and what it takes has names, once each.
func fuzz(f *testing.F, name string, seeds ...string) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	types, err := readable.LoadFiles(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const most = 1 << 20
		d, err := decode(name, data, types, most)
		if err != nil {
			return
		}
		s := &Set{Resources: make(map[cache.TypeURL]map[string]Resource)}
		if err := s.add(d, cache.Fingerprint{}); err != nil {
			return
		}
		if s.Count() != len(d.resources) {
			t.Errorf("of %d resources %d were taken", len(d.resources), s.Count())
		}
		for name, r := range s.Resources[d.typeURL] {
			if name == "" || r.Name == "" || r.Version == "" {
				t.Errorf("%q is %+v", name, r)
			}
		}
	})
}

const clusterJSON = `{"type_url": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "resources": [{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a"}]}`

const collectionJSON = `{"version": "1", "resource": {"@type": "type.googleapis.com/envoy.config.listener.v3.ListenerCollection", "entries": [{"inline_entry": {"name": "a", "resource": {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "a"}}}, {"locator": {"id": "b"}}]}}`

func FuzzJSON(f *testing.F) {
	fuzz(f, "f.json", clusterJSON, collectionJSON, `{"resources": [[[1]]]}`, `{"resources": [{"@type": 1}], "x": {}}`)
}

func FuzzYAML(f *testing.F) {
	fuzz(f, "f.yaml", clusterYAML, clusterJSON, collectionJSON, laughs(), "resources: &x [*x]", "a: 0x1F\nb: .inf\n? [c]\n: d", "\ta", "!!binary a")
}

func FuzzText(f *testing.F) {
	fuzz(f, "f.txtpb", `resources { [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: "a" } }`, "a{a{a", `type_url: "x"`)
}

func FuzzBinary(f *testing.F) {
	sound, err := proto.Marshal(&discovery.DiscoveryResponse{TypeUrl: string(cache.Cluster), Resources: []*anypb.Any{{TypeUrl: string(cache.Cluster), Value: []byte("\n\x01a")}}})
	if err != nil {
		f.Fatal(err)
	}
	fuzz(f, "f.pb", string(sound), string(sound[:len(sound)-2]), inFormats(f, collection(f, "a", "b"))["a.pb"])
}
