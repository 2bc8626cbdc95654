package helm

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write deploy/kubernetes as the chart renders it")

// TestPlain: the manifests of deploy/kubernetes are what the chart renders.
func TestPlain(t *testing.T) {
	base := render(t, values(t, "deployment"))
	for file, docs := range map[string][]document{
		"base/tier.yaml":                         base.Docs,
		"daemonset.yaml":                         render(t, values(t, "daemonset")).Docs,
		"sidecar.yaml":                           render(t, values(t, "sidecar")).Docs,
		"overlays/autoscaled/autoscaler.yaml":    added(base, overlay(t, "autoscaled"), "HorizontalPodAutoscaler"),
		"overlays/monitored/monitoring.yaml":     added(base, overlay(t, "monitored"), "PodMonitor", "PrometheusRule"),
		"overlays/restricted/networkpolicy.yaml": added(base, overlay(t, "restricted"), "NetworkPolicy"),
	} {
		want := "# Rendered from deploy/helm/xds-relay; `make helm-plain` writes it again.\n" + plain(docs)
		path := filepath.Join(plainDir, file)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is not what the chart renders (%v): make helm-plain", file, err)
		}
	}
	keepSums(t)
}

// keepSums keeps sums of what was rendered, and of what it was rendered from, by which a test that knows no Helm
// (deploy.TestPlainIsRendered) sees that one of them has changed.
func keepSums(t testing.TB) {
	t.Helper()
	const sums = plainDir + "/SHA256SUMS"
	var out strings.Builder
	for _, pattern := range []string{
		"helm/xds-relay/Chart.yaml", "helm/xds-relay/values.yaml", "helm/xds-relay/templates/*.*", "helm/xds-relay/templates/*/*", "helm/xds-relay/files/*.yaml",
		"helm/xds-relay/ci/deployment-*", "helm/xds-relay/ci/daemonset-*", "helm/xds-relay/ci/sidecar-*",
		"kubernetes/*.yaml", "kubernetes/*/*.yaml", "kubernetes/*/*/*.yaml",
	} {
		files, err := filepath.Glob(filepath.Join(root, "deploy", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(filepath.Join(root, "deploy"), path)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(text), filepath.ToSlash(name))
		}
	}
	if *update {
		if err := os.WriteFile(sums, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(sums); err != nil || string(got) != out.String() {
		t.Errorf("%s is out of date (%v): make helm-plain", sums, err)
	}
}

// overlays are the values that each overlay stands for, over those of the base.
var overlays = map[string]string{
	"autoscaled": "autoscaling: {enabled: true}",
	"monitored":  "{podMonitor: {enabled: true}, prometheusRule: {enabled: true}}",
	"restricted": "networkPolicy: {enabled: true}",
}

func overlay(t testing.TB, name string) rendering {
	t.Helper()
	return render(t, values(t, "deployment", overlays[name]))
}

// added are the documents of some kinds that are in a rendering, and not in the base.
func added(base, r rendering, kinds ...string) (docs []document) {
	for _, d := range r.Docs {
		if slices.Contains(kinds, d.Object.GetObjectKind().GroupVersionKind().Kind) && !slices.ContainsFunc(base.Docs, func(b document) bool { return b.Text == d.Text }) {
			docs = append(docs, d)
		}
	}
	return docs
}

// TestKustomize: what kustomize builds of the base, and of each overlay, is what the chart renders with its values.
func TestKustomize(t *testing.T) {
	dirs := map[string]string{"base": "{}"}
	for name, over := range overlays {
		dirs["overlays/"+name] = over
	}
	listed, err := filepath.Glob(filepath.Join(plainDir, "*", "*", "kustomization.yaml"))
	if err != nil || len(listed) != len(overlays) {
		t.Errorf("%d overlays, %d are tested: %v", len(listed), len(overlays), err)
	}
	for dir, over := range dirs {
		t.Run(dir, func(t *testing.T) {
			built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(plainDir, dir))
			if err != nil {
				t.Fatal(err)
			}
			text, err := built.AsYaml()
			if err != nil {
				t.Fatal(err)
			}
			got, want := objects(t, string(text)), objects(t, plain(render(t, values(t, "deployment", over)).Docs))
			for name, object := range want {
				if got[name] != object {
					t.Errorf("%s is\n%s\nwant\n%s", name, got[name], object)
				}
				delete(got, name)
			}
			for name := range got {
				t.Errorf("there is %s, too", name)
			}
		})
	}
}

// objects are documents by kind and name, in a form that can be compared.
func objects(t testing.TB, text string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		doc += "\n" // which ends its last line
		var o struct {
			Kind     string
			Metadata struct{ Name string }
		}
		var whole any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(doc), &whole); err != nil {
			t.Fatal(err)
		}
		if o.Kind == "" {
			continue
		}
		same, err := yaml.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		found[o.Kind+" "+o.Metadata.Name] = string(same)
	}
	return found
}
