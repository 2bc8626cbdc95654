package helm

import (
	"bytes"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

const (
	root        = "../../../.."
	chartDir    = root + "/deploy/helm/xds-relay"
	plainDir    = root + "/deploy/kubernetes"
	releaseName = "xds-relay"
	namespace   = "relay-system"
)

// environment is what Kubernetes would put into the place of fieldRef and secretKeyRef.
var environment = map[string]string{"POD_NAME": "relay-0", "POD_NAMESPACE": namespace, "NODE_NAME": "node-0", "TOKEN": "secret"}

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // Helm logs each symlink of the chart, each time
	for name, value := range environment {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	peer.Cleanup()
	os.Exit(code)
}

// rendering is what a chart becomes with some values.
type rendering struct {
	Notes string
	// Docs are the documents in the order in which Helm installs them, those of hooks last.
	Docs []document
}

// document is one of them, as Helm writes it, and as Kubernetes' own types read it.
type document struct {
	Text   string
	Object runtime.Object
	Hook   bool
}

// values are those of a file of the chart's directory ci, with others over them.
func values(t testing.TB, file string, over ...string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "ci", file+"-values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	for _, part := range append([]string{string(text)}, over...) {
		var more map[string]any
		if err := yaml.UnmarshalStrict([]byte(part), &more); err != nil {
			t.Fatal(err)
		}
		all = chartutil.CoalesceTables(more, all)
	}
	return all
}

// cases are the values that all tests of renderings go through.
func cases(t testing.TB) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chartDir, "ci", "*-values.yaml"))
	if err != nil || len(files) < 6 {
		t.Fatalf("%d files of values: %v", len(files), err)
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), "-values.yaml"))
	}
	return names
}

// templated is what `helm template` does; the values are checked by the chart's schema.
func templated(dir string, with map[string]any) (map[string]string, error) {
	chart, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	return templatedChart(chart, with)
}

func templatedChart(chart *chart.Chart, with map[string]any) (map[string]string, error) {
	if err := chartutil.ProcessDependenciesWithMerge(chart, with); err != nil {
		return nil, err
	}
	options := chartutil.ReleaseOptions{Name: releaseName, Namespace: namespace, Revision: 1, IsInstall: true}
	top, err := chartutil.ToRenderValues(chart, with, options, capabilities())
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, top)
}

// capabilities are those of the newest Kubernetes that TestSchemas knows.
func capabilities() *chartutil.Capabilities {
	c := chartutil.DefaultCapabilities.Copy()
	c.KubeVersion = chartutil.KubeVersion{Version: "v1.32.0", Major: "1", Minor: "32"}
	return c
}

// render renders the chart, and decodes all documents strictly.
func render(t testing.TB, with map[string]any) (r rendering) {
	t.Helper()
	return renderDir(t, chartDir, with)
}

func renderDir(t testing.TB, dir string, with map[string]any) (r rendering) {
	t.Helper()
	chart, err := loader.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return rendered(t, chart, with)
}

func rendered(t testing.TB, chart *chart.Chart, with map[string]any) (r rendering) {
	t.Helper()
	files, err := templatedChart(chart, with)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(path, "NOTES.txt") {
			if strings.Count(path, "/") == 2 { // not a dependency's
				r.Notes = files[path]
			}
			delete(files, path)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifests {
		r.Docs = append(r.Docs, document{Text: m.Content, Object: decoded(t, m.Content)})
	}
	for _, h := range hooks {
		r.Docs = append(r.Docs, document{Text: h.Manifest, Object: decoded(t, h.Manifest), Hook: true})
	}
	return r
}

// all are the documents of one of Kubernetes' types.
func all[T runtime.Object](r rendering) (objects []T) {
	for _, d := range r.Docs {
		if o, ok := d.Object.(T); ok && !d.Hook {
			objects = append(objects, o)
		}
	}
	return objects
}

// one is the only document of a type.
func one[T runtime.Object](t testing.TB, r rendering) (object T) {
	t.Helper()
	objects := all[T](r)
	if len(objects) != 1 {
		t.Fatalf("there are %d of %T, want one", len(objects), object)
	}
	return objects[0]
}

// plain is how documents are written without Helm: what only Helm needs, or keeps up to date, is left out, comments are
// kept.
func plain(docs []document) string {
	var out bytes.Buffer
	for _, d := range docs {
		if d.Hook {
			continue
		}
		out.WriteString("---\n")
		for line := range strings.Lines(strings.TrimSpace(d.Text) + "\n") {
			word := strings.TrimSpace(line)
			key, _, _ := strings.Cut(word, ": ")
			if word != "" && !slices.Contains([]string{"helm.sh/chart", "app.kubernetes.io/managed-by", "xds-relay/restart-checksum"}, key) {
				out.WriteString(line)
			}
		}
	}
	return out.String()
}
