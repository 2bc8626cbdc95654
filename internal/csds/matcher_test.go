package csds

import (
	"fmt"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// shop is the node that the matchers of these tests are about.
const shop = `{"id": "edge-Shop-1", "metadata": {"zone": "b", "port": 8080, "canary": true, "none": null, "labels": {"app": "shop", "tags": ["x", "y"]}}}`

func TestMatchers(t *testing.T) {
	var node core.Node
	if err := protojson.Unmarshal([]byte(shop), &node); err != nil {
		t.Fatal(err)
	}
	of := func(path, value string) string {
		var keys []string
		for key := range strings.SplitSeq(path, ".") {
			keys = append(keys, fmt.Sprintf(`{"key": %q}`, key))
		}
		return fmt.Sprintf(`{"nodeMetadatas": [{"path": [%s], "value": {%s}}]}`, strings.Join(keys, ","), value)
	}
	for _, tt := range []struct {
		matchers string
		want     bool
	}{
		{`{}`, true},
		{`{"nodeId": {"exact": "edge-Shop-1"}}`, true},
		{`{"nodeId": {"exact": "edge-shop-1"}}`, false},
		{`{"nodeId": {"exact": "EDGE-shop-1", "ignoreCase": true}}`, true},
		{`{"nodeId": {"prefix": "edge-"}}`, true},
		{`{"nodeId": {"prefix": "dge-"}}`, false},
		{`{"nodeId": {"suffix": "-1"}}`, true},
		{`{"nodeId": {"suffix": "-2"}}`, false},
		{`{"nodeId": {"contains": "Shop"}}`, true},
		{`{"nodeId": {"contains": "shop"}}`, false},
		{`{"nodeId": {"contains": "shop", "ignoreCase": true}}`, true},
		{`{"nodeId": {"safeRegex": {"regex": "edge-.*-[0-9]"}}}`, true},
		{`{"nodeId": {"safeRegex": {"regex": "edge"}}}`, false},
		{`{"nodeId": {"safeRegex": {"regex": "x|edge"}}}`, false},
		{`{"nodeId": {"exact": "x"}}, {"nodeId": {"prefix": "edge"}}`, true},
		{of("zone", `"stringMatch": {"exact": "b"}`), true},
		{of("zone", `"stringMatch": {"exact": "a"}`), false},
		{of("labels.app", `"stringMatch": {"prefix": "sh"}`), true},
		{of("labels.app.deeper", `"presentMatch": true`), false},
		{of("port", `"doubleMatch": {"exact": 8080}`), true},
		{of("port", `"doubleMatch": {"range": {"start": 1, "end": 8080}}`), false},
		{of("port", `"doubleMatch": {"range": {"start": 8080, "end": 8081}}`), true},
		{of("port", `"stringMatch": {"exact": "8080"}`), false},
		{of("canary", `"boolMatch": true`), true},
		{of("canary", `"boolMatch": false`), false},
		{of("none", `"nullMatch": {}`), true},
		{of("zone", `"nullMatch": {}`), false},
		{of("zone", `"presentMatch": true`), true},
		{of("nowhere", `"presentMatch": true`), false},
		{of("nowhere", `"presentMatch": false`), true},
		{of("labels", `"presentMatch": true`), false},
		{of("labels.tags", `"listMatch": {"oneOf": {"stringMatch": {"exact": "y"}}}`), true},
		{of("labels.tags", `"listMatch": {"oneOf": {"stringMatch": {"exact": "z"}}}`), false},
		{of("zone", `"orMatch": {"valueMatchers": [{"stringMatch": {"exact": "a"}}, {"stringMatch": {"exact": "b"}}]}`), true},
		{`{"nodeId": {"prefix": "edge"}, "nodeMetadatas": [{"path": [{"key": "zone"}], "value": {"stringMatch": {"exact": "a"}}}]}`, false},
		{`{"nodeMetadatas": [{"path": [{"key": "zone"}], "value": {"presentMatch": true}}, {"path": [{"key": "none"}], "value": {"stringMatch": {"exact": "a"}}}]}`, false},
	} {
		matches, err := nodes(requested(t, tt.matchers).GetNodeMatchers())
		if err != nil {
			t.Errorf("%s: %v", tt.matchers, err)
		} else if got := matches(&node); got != tt.want {
			t.Errorf("%s: %v", tt.matchers, got)
		}
	}
}

// TestWrongMatchers: the error says which matcher is wrong, and what may be there.
func TestWrongMatchers(t *testing.T) {
	deep := strings.Repeat(`{"listMatch": {"oneOf": `, maxDepth) + `{"boolMatch": true}` + strings.Repeat(`}}`, maxDepth)
	for _, tt := range []struct{ matchers, want string }{
		{`{"nodeId": {}}`, "node_matchers[0].node_id.match_pattern: none is set; use exact, prefix"},
		{`{}, {"nodeId": {"safeRegex": {"regex": "("}}}`, "node_matchers[1].node_id.safe_regex.regex: it is no regular expression of RE2"},
		{`{"nodeId": {"safeRegex": {"regex": "a)|(?:b"}}}`, "no regular expression"},
		{`{"nodeId": {"safeRegex": {"regex": ""}}}`, "it has 0 bytes; use 1 to 1024"},
		{`{"nodeId": {"safeRegex": {"regex": "` + strings.Repeat("a", maxRegex+1) + `"}}}`, "it has 1025 bytes"},
		{`{"nodeId": {"custom": {"name": "x"}}}`, "extensions are not known here"},
		{strings.Repeat(`{},`, maxMatchers) + `{}`, "there are 17 node_matchers, and 16 are allowed"},
		{`{"nodeMetadatas": [` + strings.Repeat(`{},`, maxMatchers) + `{}]}`, "node_metadatas: there are 17, and 16 are allowed"},
		{`{"nodeMetadatas": [{}]}`, "node_metadatas[0].path: it has 0 segments"},
		{`{"nodeMetadatas": [{"path": [{"key": "a"}]}]}`, "value.match_pattern: none is set; use string_match"},
		{`{"nodeMetadatas": [{"path": [{"key": "a"}], "value": {"stringMatch": {}}}]}`, "string_match.match_pattern: none is set"},
		{`{"nodeMetadatas": [{"path": [{"key": "a"}], "value": {"listMatch": {}}}]}`, "list_match.one_of.match_pattern: none is set"},
		{`{"nodeMetadatas": [{"path": [{"key": "a"}], "value": {"orMatch": {"valueMatchers": [{}]}}}]}`, "or_match.match_pattern: none is set"},
		{`{"nodeMetadatas": [{"path": [{"key": "a"}], "value": ` + deep + `}]}`, "more than 8 are in each other"},
	} {
		if _, err := nodes(requested(t, tt.matchers).GetNodeMatchers()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.matchers, err, tt.want)
		}
	}
}

// requested is a request with these matchers.
func requested(t *testing.T, matchers string) *discovery.ClientStatusRequest {
	t.Helper()
	req := new(discovery.ClientStatusRequest)
	if err := protojson.Unmarshal([]byte(`{"nodeMatchers": [`+matchers+`]}`), req); err != nil {
		t.Fatal(matchers, err)
	}
	return req
}
