package deploy

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3" // named by the examples
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"        // named by the examples
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/goccy/go-yaml"
	"go.uber.org/goleak"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/origin/files"
	"github.com/xds-relay/xds-relay/internal/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestExamples loads every example as the relay, Envoy or gRPC would.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("examples/*/*")
	if err != nil || len(files) < 6 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.IsDir() {
			continue // a program, which the compiler checks
		}
		t.Run(strings.TrimPrefix(file, "examples/"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			load, ok := loaders[filepath.Base(file)]
			if !ok {
				t.Fatalf("no test knows how to load %s; add it to loaders", file)
			}
			load(t, file, data)
		})
	}
}

var loaders = map[string]func(*testing.T, string, []byte){
	"relay.yaml":          loadRelay,
	"rules.yaml":          loadRules,
	"envoy.yaml":          loadEnvoy,
	"endpoints.yaml":      loadEndpoints,
	"envoyproxy.yaml":     loadEnvoyProxy,
	"grpc-bootstrap.json": loadGRPC,
	"README.md":           loadReadme,
}

func loadRelay(t *testing.T, file string, data []byte) {
	if _, err := config.Parse(file, data, nil); err != nil {
		t.Error(err)
	}
}

// loadRules reads rules for the configuration beside them, and asks them what their comments say.
func loadRules(t *testing.T, file string, data []byte) {
	c, err := config.Load(filepath.Join(filepath.Dir(file), "relay.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := relay.ParseRules(file, string(data), c)
	if err != nil {
		t.Fatal(err)
	}
	if notes := rules.Notes(); len(notes) > 0 {
		t.Errorf("validate says of it: %v", notes)
	}
	const web = "spiffe://cluster.local/ns/shop/sa/web"
	for name, allowed := range map[string]bool{"shop/web/key": true, "trust-bundle": true, "shop/web-admin/key": false, "shop/bob/key": false, "*": false} {
		if v := rules.Judge(web, nil, cache.Secret, name); v.Allowed != allowed || allowed && !v.Shared {
			t.Errorf("%s reads the secret %s: %+v", web, name, v)
		}
	}
	if v := rules.Judge(web, nil, cache.Cluster, "*"); !v.Allowed {
		t.Errorf("%s does not read clusters: %v", web, v.Because)
	}
}

// loadEnvoy reads the file into Envoy's own type, strictly, and checks it by the
// constraints that Envoy enforces.
func loadEnvoy(t *testing.T, _ string, data []byte) {
	j, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	b := new(bootstrap.Bootstrap)
	if err := protojson.Unmarshal(j, b); err != nil {
		t.Fatal(err)
	}
	if err := b.ValidateAll(); err != nil {
		t.Error(err)
	}
}

// loadEndpoints reads a file that an Envoy takes endpoints from.
func loadEndpoints(t *testing.T, _ string, data []byte) {
	j, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	r := new(discovery.DiscoveryResponse)
	if err := protojson.Unmarshal(j, r); err != nil {
		t.Fatal(err)
	}
	for _, a := range r.GetResources() {
		e := new(endpoint.ClusterLoadAssignment)
		if err := a.UnmarshalTo(e); err != nil {
			t.Fatal(err)
		}
		if err := e.ValidateAll(); err != nil {
			t.Error(err)
		}
	}
}

// loadEnvoyProxy reads an object of Kubernetes; make e2e-envoy-gateway has Envoy Gateway
// read it.
func loadEnvoyProxy(t *testing.T, _ string, data []byte) {
	var object struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     map[string]any
	}
	if err := yaml.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	if object.Kind != "EnvoyProxy" || object.Metadata.Name == "" || len(object.Spec) == 0 {
		t.Errorf("no EnvoyProxy: %v", object)
	}
}

// loadReadme checks that the files that are linked to are there. internal/test/e2e/envoy runs
// the commands.
func loadReadme(t *testing.T, file string, data []byte) {
	for _, link := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(string(data), -1) {
		if _, err := os.Stat(filepath.Join(filepath.Dir(file), link[1])); err != nil {
			t.Error(err)
		}
	}
}

// loadGRPC has gRPC's own xDS client read the file; certificates are first looked
// for when it connects.
func loadGRPC(t *testing.T, _ string, data []byte) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&map[string]any{}); err != nil {
		t.Fatal(err)
	}
	if _, err := xds.NewXDSResolverWithConfigForTesting(data); err != nil {
		t.Error(err)
	}
}

// TestFilesExample: the files of the example can be served, and a client would take all of them.
func TestFilesExample(t *testing.T) {
	s, err := files.Load("examples/files/xds", files.Options{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if notes := s.Notes(); s.Count() != 3 || len(notes) > 0 {
		t.Errorf("%d resources, %q", s.Count(), notes)
	}
}
