package deploy

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/deploy/schema"
	"github.com/xds-relay/xds-relay/internal/config"
)

var update = flag.Bool("update", false, "write what the chart has of the relay's configuration")

const chart = "helm/xds-relay/"

// TestChartConfig: the chart has of the configuration what its values.schema.json and its checksum of keys that need a
// restart are made of. Helm can refer to no file outside of a chart, so they are copies. internal/test/e2e/helm tests
// the chart itself.
func TestChartConfig(t *testing.T) {
	relay := decode(t, schema.JSON)
	keep(t, "files/restart-keys.txt", []byte(strings.Join(restartKeys(t, "", relay), "\n")+"\n"))

	text, err := os.ReadFile(chart + "values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	values := decode(t, text)
	delete(relay, "$schema") // the one of the whole file holds
	delete(relay, "title")
	values["properties"].(map[string]any)["config"] = relay
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(values); err != nil {
		t.Fatal(err)
	}
	keep(t, "values.schema.json", out.Bytes())
}

// TestPlainIsRendered: nobody has changed the chart, or a manifest of kubernetes/, since the manifests were rendered.
// What they were rendered from, and to, is in SHA256SUMS, which the test that renders them writes.
func TestPlainIsRendered(t *testing.T) {
	sums, err := os.ReadFile("kubernetes/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[name] = true
		text, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		if fmt.Sprintf("%x", sha256.Sum256(text)) != sum {
			t.Errorf("%s has changed: make helm-plain e2e-helm", name)
		}
	}
	for _, pattern := range []string{"helm/xds-relay/templates/*.*", "kubernetes/*.yaml", "kubernetes/*/*.yaml", "kubernetes/*/*/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %v", pattern, err)
		}
		for _, name := range files {
			if !listed[filepath.ToSlash(name)] {
				t.Errorf("%s is new: make helm-plain e2e-helm", name)
			}
		}
	}
}

func decode(t *testing.T, text []byte) (object map[string]any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&object); err != nil {
		t.Fatal(err)
	}
	return object
}

// restartKeys are the keys below a section of the schema whose change needs a restart.
func restartKeys(t *testing.T, path string, section map[string]any) (keys []string) {
	t.Helper()
	properties, ok := section["properties"].(map[string]any)
	if !ok {
		at, known := config.ReloadOf(path)
		if !known {
			t.Fatalf("nobody says when a change of %s takes effect", path)
		}
		if at == config.ReloadRestart {
			keys = []string{path}
		}
		return keys
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		keys = append(keys, restartKeys(t, strings.TrimPrefix(path+"."+name, "."), properties[name].(map[string]any))...)
	}
	return keys
}

// keep compares a file of the chart with what it is to be, or writes it.
func keep(t *testing.T, name string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(chart+name, want, 0o644); err != nil { //nolint:gosec // a file of the repository, for everybody
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(chart + name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s%s is out of date (%v): go test ./deploy -run ChartConfig -update", chart, name, err)
	}
}
