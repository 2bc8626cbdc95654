package xdsjson

import (
	"encoding/json"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/internal/readable"
)

const aCluster = `{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", "connect_timeout": "1s"}`

// key is a response with a secret whose private key is this.
func key(text string) string {
	return `{"resources": [{"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "tls_certificate": {"private_key": ` + text + `}}]}`
}

func messages(t testing.TB) *readable.Set {
	t.Helper()
	set, err := readable.Load()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestReadResponse: both spellings of fields are read, and both make the same bytes.
func TestReadResponse(t *testing.T) {
	var bodies [2]string
	for i, text := range []string{
		`{"version_info": "1", "resources": [` + aCluster + `]}`,
		`{"versionInfo": "1", "controlPlane": {"identifier": "x"}, "resources": [` + strings.ReplaceAll(aCluster, "connect_timeout", "connectTimeout") + `]}`,
	} {
		resp, m := ReadResponse([]byte(text), limit, messages(t))
		if m != nil || resp.GetVersionInfo() != "1" || len(resp.GetResources()) != 1 {
			t.Fatalf("%s is read as %v, %v", text, resp, m)
		}
		bodies[i] = string(resp.GetResources()[0].GetValue())
	}
	if bodies[0] != bodies[1] || bodies[0] == "" {
		t.Errorf("got %q", bodies)
	}
}

// TestBadResponse: whatever is wrong refuses the whole, and says where, and no value (REST-16).
func TestBadResponse(t *testing.T) {
	for text, says := range map[string]string{
		"":                   "is no JSON object",
		"<html>sorry</html>": "line 1, column 1: is no JSON object",
		"[]":                 "is no JSON object",
		"{":                  "is no JSON object",
		"{\n \"resources\": [{\"@type\": \"type.googleapis.com/made.Up\", \"x\": 1}]}":                                                                       `line 2, column 26: unable to resolve "type.googleapis.com/made.Up"`,
		"{\n \"resources\": [{\"@type\": \"type.googleapis.com/envoy.config.cluster.v3.Cluster\", \"made_up\": 1}]}":                                         `line 2, column 81: unknown field "made_up"`,
		`{"resources": [{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "typed_extension_protocol_options": {"x": {"@type": "made.Up"}}}]}`: `made.Up`,
		`{"resources": [{"x": 1}]}`: "",
		`{"resources": [{"@type": "type.googleapis.com/google.protobuf.Struct", "value": ` + strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100) + `}]}`: "are more than 100 deep",
		`{"x": "` + strings.Repeat("x", limit) + `"}`:             "is larger than 16384 bytes",
		`{"resources": [` + strings.Repeat("1,", limit/3) + `1]}`: "of memory",
		`{"version_info": 3}`:                                     "line 1, column 18: invalid value for string field versionInfo",
		key(`{"inline_bytes": "-----BEGIN canary!"}`):             "invalid value for bytes field inlineBytes",
		key(`"canary"`):                     "unexpected token",
		key(`{"inline_string": canary}`):    "is no JSON object: invalid value",
		key(`{"inline_string": "\canary"}`): "is no JSON object: invalid escape",
		`{"resources": [{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "connect_timeout": "canary"}]}`: "invalid google.protobuf.Duration",
	} {
		resp, m := ReadResponse([]byte(text), limit, messages(t))
		if m == nil || !strings.Contains(m.Error(), says) || strings.Contains(m.Error(), "canary") {
			t.Errorf("%.150q is read as %.100v, %v; want %q", text, resp, m, says)
		}
	}
}

// TestAppendRequest: a request is written as Envoy writes it.
func TestAppendRequest(t *testing.T) {
	text, err := AppendRequest(nil, &discovery.DiscoveryRequest{VersionInfo: "1", Node: &core.Node{Id: "a", UserAgentName: "xds-relay"}, ResourceNames: []string{"x"}, TypeUrl: "t"})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if node, _ := got["node"].(map[string]any); got["version_info"] != "1" || got["type_url"] != "t" || node["user_agent_name"] != "xds-relay" {
		t.Errorf("it is %s", text)
	}
}

// FuzzReadResponse: whatever is read is JSON, and is read again as the same; what is refused says why.
func FuzzReadResponse(f *testing.F) {
	set := messages(f)
	for _, seed := range []string{
		"", "{}", `{"resources": []}`, `{"resources": [` + aCluster + `]}`, "<html>", strings.Repeat("[", 200), `{"resources": [{"@type": "made.Up"}]}`,
		`{"resources": [{"@type": "type.googleapis.com/envoy.service.discovery.v3.Resource", "name": "b", "resource": ` + aCluster + `}]}`,
		`{"resources": [` + aCluster + `,` + aCluster + `], "typeUrl": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "version_info": "\ud83d\ude00"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		resp, m := ReadResponse(text, limit, set)
		if m != nil {
			if m.Message == "" || m.Line < 0 || m.Line > 0 && m.Column < 1 {
				t.Errorf("%q is refused with %#v", text, m)
			}
			return
		}
		if !json.Valid(text) {
			t.Errorf("%q is read, and is no JSON", text)
		}
		again, err := protojson.MarshalOptions{Resolver: set.Resolver()}.Marshal(resp)
		if err != nil {
			t.Fatalf("%q cannot be written: %v", text, err)
		}
		same, m := ReadResponse(again, 64*limit, set)
		if m != nil || !proto.Equal(resp, same) {
			t.Errorf("%q is read as %v, and that as %v, %v", text, resp, same, m)
		}
	})
}
