package e2e

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

var update = flag.Bool("update", false, "write the table of docs/versions.md")

// tried are the real programs that tests run. The pattern's group is the version.
var tried = []struct{ what, file, pattern, by string }{
	{"Envoy, below the relay, Delta and SotW", "internal/test/e2e/realenvoy/find.go", `const Version = "([^"]+)"`, "`make e2e-envoy`, and the gate"},
	{"grpc-go, its own xDS client, below", "go.mod", `google\.golang\.org/grpc v(\S+)`, "`go test ./internal/test/e2e`, and the gate"},
	{"grpc-java, its own xDS client, below", "internal/test/e2e/java-xds/pom.xml", `<grpc\.version>([^<]+)<`, "`make e2e-java`"},
	{"go-control-plane, above", "go.mod", `github\.com/envoyproxy/go-control-plane v(\S+)`, "`go test ./internal/test/e2e`, and the gate"},
	{"java-control-plane, above", "internal/test/e2e/java/pom.xml", `<controlplane\.version>([^<]+)<`, "`make e2e-java`"},
	{"Consul, above", "internal/test/e2e/consul/build_test.go", `consulVersion = "v([^"]+)"`, "`make e2e-consul`"},
	{"Envoy Gateway, above", "internal/test/e2e/envoygateway/main_test.go", `gatewayVersion = "v([^"]+)"`, "`make e2e-envoy-gateway`"},
	{"Prometheus' engine, for alerts and dashboards", "internal/test/e2e/alerts/go.mod", `github\.com/prometheus/prometheus v(\S+)`, "`make e2e-alerts`"},
	{"Helm, without a cluster", "internal/test/e2e/helm/go.mod", `helm\.sh/helm/v3 v(\S+)`, "`make e2e-helm`"},
	{"the relay's version before, beside, above and below", "internal/test/peer/earlier.go", `earlierCommit = "([^"]+)"`, "`go test ./internal/test/e2e -run OneVersionApart`, and the gate"},
}

// TestTried: docs/versions.md lists the versions that tests run.
func TestTried(t *testing.T) {
	root, err := peer.Root()
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var table strings.Builder
	table.WriteString("\n| | Version | By |\n|---|---|---|\n")
	for _, p := range tried {
		found := regexp.MustCompile(p.pattern).FindStringSubmatch(read(p.file))
		if found == nil {
			t.Fatalf("%s has no version of %s", p.file, p.what)
		}
		table.WriteString("| " + p.what + " | " + found[1] + " | " + p.by + " |\n")
	}
	table.WriteString("\n")
	const doc = "docs/versions.md"
	text := read(doc)
	before, rest, begun := strings.Cut(text, "-update -->\n")
	was, after, ended := strings.Cut(rest, "<!-- /tried -->")
	switch {
	case !begun || !ended:
		t.Fatalf("%s has no place for the table", doc)
	case was == table.String():
	case *update:
		if err := os.WriteFile(filepath.Join(root, doc), []byte(before+"-update -->\n"+table.String()+"<!-- /tried -->"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has not the versions that the tests run: go test ./internal/test/e2e -run Tried -update", doc)
	}
}
