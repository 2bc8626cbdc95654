package rest

import (
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
)

const (
	aCluster   = `{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a"}`
	inWrapper  = `{"@type": "type.googleapis.com/envoy.service.discovery.v3.Resource", "name": "b", "resource": ` + aCluster + `}`
	withTTL    = `{"@type": "type.googleapis.com/envoy.service.discovery.v3.Resource", "name": "b", "ttl": "1s", "resource": ` + aCluster + `}`
	withAlias  = `{"@type": "type.googleapis.com/envoy.service.discovery.v3.Resource", "name": "b", "aliases": ["c"], "resource": ` + aCluster + `}`
	twoNames   = `{"@type": "type.googleapis.com/envoy.service.discovery.v3.Resource", "name": "b", "resource_name": {"name": "c"}, "resource": ` + aCluster + `}`
	nameless   = `{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster"}`
	noResource = `{"@type": "type.googleapis.com/envoy.service.discovery.v3.Resource", "name": "b"}`
	aGlob      = `{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "xdstp://cp/t/*"}`
	anEndpoint = `{"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "a"}`
)

func response(resources ...string) string {
	return `{"version_info": "1", "resources": [` + strings.Join(resources, ",") + `]}`
}

// TestDecode: an answer is taken whole, or not at all (REST-16).
func TestDecode(t *testing.T) {
	o := optionsFor(t, "")
	for text, says := range map[string]string{
		response():                    "",
		response(aCluster, inWrapper): "",
		"{}":                          "",
		response(aCluster, aCluster):  `resources[1]: "a" is listed twice`,
		response(aCluster, withTTL):   "resources[1] has a ttl",
		response(withAlias):           "resources[0] has aliases",
		response(twoNames):            "resources[0] has no name",
		response(aGlob):               `resources[0]: "xdstp://cp/t/*" is a glob`,
		response(nameless):            "resources[0] has no name",
		response(noResource):          `resources[0] is of type ""`,
		response(anEndpoint):          `resources[0] is of type "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", and`,
		`{"type_url": "type.googleapis.com/envoy.config.listener.v3.Listener"}`: `is of type "type.googleapis.com/envoy.config.listener.v3.Listener", and`,
		`{"resources": "` + strings.Repeat("x", 1<<20) + `"}`:                   "is larger than 1048576 bytes; see upstream.max_receive_bytes",
	} {
		d, err := o.decode(cache.Cluster, []byte(text))
		switch {
		case says == "" && err != nil, says != "" && (err == nil || !strings.Contains(err.Error(), says)):
			t.Errorf("%.200s: %v, want %q", text, err, says)
		case says == "" && len(d.resources) != strings.Count(text, "Cluster"):
			t.Errorf("%s has %d resources", text, len(d.resources))
		}
	}
}

// FuzzDecode: whatever comes is taken whole or not at all, and each resource has the name that it is under.
func FuzzDecode(f *testing.F) {
	o := optionsFor(f, "")
	o.MaxBytes = 16 << 10
	for _, seed := range []string{
		"", "{}", "<html>", response(), response(aCluster, inWrapper), response(withTTL), response(withAlias), response(twoNames), response(nameless),
		response(noResource), response(anEndpoint), response(strings.Repeat("[", 200)), `{"resources": [{"@type": "made.Up"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := o.decode(cache.Cluster, text)
		if (d == nil) == (err == nil) {
			t.Fatalf("%q: %v, %v", text, d, err)
		}
		if err != nil {
			return
		}
		for name, r := range d.resources {
			if name == "" || r == nil || r.Name != name || r.Version == "" {
				t.Errorf("%q: under %q is %v", text, name, r)
			}
		}
	})
}
