package helm

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	kubefake "helm.sh/helm/v3/pkg/kube/fake"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// block is a fenced block of a document: its language, and its lines.
type block struct{ lang, text string }

func blocks(t testing.TB, path string) (found []block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	var b *block
	for line := range strings.Lines(string(text)) {
		lang, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && b == nil:
			b = &block{lang: lang}
		case fence:
			found, b = append(found, *b), nil
		case b != nil:
			b.text += line
		}
	}
	return found
}

// needCluster are the commands of the documents that no test runs, since they ask a cluster. docs/operations.md says so.
var needCluster = []string{"helm test", "kubectl port-forward", "kubectl rollout"}

// TestCommands runs the commands of Helm that docs/operations.md shows, in their order, with the values that it shows, by
// Helm's own actions. The cluster takes everything, and has nothing.
func TestCommands(t *testing.T) {
	helm := &action.Configuration{
		Releases:     storage.Init(driver.NewMemory()),
		KubeClient:   &kubefake.PrintingKubeClient{Out: io.Discard},
		Capabilities: capabilities(),
		Log:          func(string, ...any) {},
	}
	var shown string // the last values
	ran := map[string]int{}
	for _, b := range blocks(t, "docs/operations.md") {
		if b.lang == "yaml" {
			shown = b.text
			continue
		}
		for line := range strings.Lines(b.text) {
			line, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "$ "), " #")
			words := strings.Fields(line)
			if len(words) < 2 || words[0] != "helm" && words[0] != "kubectl" {
				continue
			}
			verb := words[0] + " " + words[1]
			if slices.Contains(needCluster, verb) {
				continue
			}
			ran[verb]++
			if err := run(t, helm, parsed(t, words[1:]), shown); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	for _, verb := range []string{"helm install", "helm upgrade", "helm rollback"} {
		if ran[verb] == 0 {
			t.Errorf("the document has no %s any more", verb)
		}
	}
}

// command is a command of Helm.
type command struct {
	verb, release, chart, namespace string
	create                          bool
	values                          string
}

func parsed(t testing.TB, words []string) (c command) {
	t.Helper()
	places := []*string{&c.verb, &c.release, &c.chart}
	for i := 0; i < len(words); i++ {
		flag := map[string]*string{"--namespace": &c.namespace, "-f": &c.values}[words[i]]
		switch {
		case words[i] == "--create-namespace":
			c.create = true
		case flag != nil && i+1 < len(words):
			i++
			*flag = words[i]
		case strings.HasPrefix(words[i], "-") || len(places) == 0:
			t.Fatalf("no test knows %q of %q", words[i], words)
		default:
			*places[0], places = words[i], places[1:]
		}
	}
	return c
}

func run(t testing.TB, helm *action.Configuration, c command, shown string) error {
	t.Helper()
	var (
		ch   *chart.Chart
		with chartutil.Values
		err  error
	)
	if c.chart != "" {
		if ch, err = loader.LoadDir(filepath.Join(root, c.chart)); err != nil {
			return err
		}
		if with, err = chartutil.ReadValues([]byte(shown)); err != nil {
			return err
		}
	}
	var r *release.Release
	switch c.verb {
	case "install":
		do := action.NewInstall(helm)
		do.ReleaseName, do.Namespace, do.CreateNamespace = c.release, c.namespace, c.create
		r, err = do.Run(ch, with)
	case "upgrade":
		do := action.NewUpgrade(helm)
		do.Namespace = c.namespace
		r, err = do.Run(c.release, ch, with)
	case "rollback":
		err = action.NewRollback(helm).Run(c.release)
		if err == nil {
			r, err = helm.Releases.Deployed(c.release)
		}
	default:
		t.Fatalf("no test runs helm %s", c.verb)
	}
	if err == nil && (r.Info.Status != release.StatusDeployed || r.Namespace != c.namespace || !strings.Contains(r.Manifest, "kind: Deployment")) {
		t.Errorf("helm %s leaves %s in %s", c.verb, r.Info.Status, r.Namespace)
	}
	return err
}

// TestKustomization builds the kustomization that deploy/kubernetes/README.md shows, with the base of this repository.
func TestKustomization(t *testing.T) {
	dir := t.TempDir()
	base, err := filepath.Abs(filepath.Join(plainDir, "base"))
	if err != nil {
		t.Fatal(err)
	}
	if base, err = filepath.Rel(dir, base); err != nil {
		t.Fatal(err)
	}
	const remote = "github.com/xds-relay/xds-relay/deploy/kubernetes/base?ref=main"
	i := slices.IndexFunc(blocks(t, "deploy/kubernetes/README.md"), func(b block) bool { return b.lang == "yaml" && strings.Contains(b.text, remote) })
	if i < 0 {
		t.Fatalf("no example has %s", remote)
	}
	shown := blocks(t, "deploy/kubernetes/README.md")[i].text
	for name, text := range map[string]string{
		"kustomization.yaml": strings.ReplaceAll(shown, remote, base),
		"relay.yaml":         "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: xds-relay}\ndata: {relay.yaml: its own}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	found := objects(t, string(text))
	for name, has := range map[string]string{
		"ConfigMap xds-relay":  "relay.yaml: its own",
		"Deployment xds-relay": "image: ghcr.io/xds-relay/xds-relay:v0.1.0",
	} {
		if !strings.Contains(found[name], has) {
			t.Errorf("%s is %s\nwant %s", name, found[name], has)
		}
	}
	for name, object := range found {
		if !strings.Contains(object, "namespace: relay-system") {
			t.Errorf("%s is in no namespace", name)
		}
	}
}

// TestPackage: what `helm package` writes renders as the directory does, with what its symlinks lead to, and without the
// values of tests.
func TestPackage(t *testing.T) {
	ch, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := chartutil.Save(ch, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if ch, err = loader.Load(archive); err != nil {
		t.Fatal(err)
	}
	for _, f := range ch.Files {
		if strings.HasPrefix(f.Name, "ci/") {
			t.Errorf("the package has %s", f.Name)
		}
	}
	got, want := rendered(t, ch, values(t, "all")), render(t, values(t, "all"))
	if plain(got.Docs) != plain(want.Docs) || got.Notes != want.Notes {
		t.Error("the package renders otherwise than the directory")
	}
}
