package helm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/action"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kubectl-validate/pkg/openapiclient"
	"sigs.k8s.io/kubectl-validate/pkg/validator"
)

// strict decodes Kubernetes' and prometheus-operator's own types, and refuses unknown and repeated fields.
var strict = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubernetes.AddToScheme, monitoring.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}()

func decoded(t testing.TB, text string) runtime.Object {
	t.Helper()
	object, _, err := strict.Decode([]byte(text), nil, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return object
}

// TestLint is `helm lint --strict`, with the values of the chart itself, and with those of each case.
func TestLint(t *testing.T) {
	check := func(t *testing.T, with map[string]any) {
		t.Helper()
		do := action.NewLint()
		do.Strict, do.Namespace, do.KubeVersion = true, namespace, &capabilities().KubeVersion
		for _, err := range do.Run([]string{chartDir}, with).Errors {
			t.Error(err)
		}
	}
	t.Run("its own values", func(t *testing.T) { check(t, map[string]any{}) })
	for _, name := range cases(t) {
		t.Run(name, func(t *testing.T) { check(t, values(t, name)) })
	}
}

// TestSchemas: each document of each rendering is valid by the schemas of Kubernetes, the oldest version that the chart
// takes and the newest that kubectl-validate has, and by the CRDs of prometheus-operator.
func TestSchemas(t *testing.T) {
	text, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/prometheus-operator/prometheus-operator").Output()
	if err != nil {
		t.Fatal(err)
	}
	crds := os.DirFS(filepath.Join(strings.TrimSpace(string(text)), "example/prometheus-operator-crd"))
	for _, version := range []string{"1.30", "1.32"} {
		v, err := validator.New(openapiclient.NewOverlay(openapiclient.HardcodedPatchLoader(version), openapiclient.NewComposite(
			openapiclient.NewHardcodedBuiltins(version), openapiclient.NewLocalCRDFiles(crds))))
		if err != nil {
			t.Fatal(err)
		}
		validate := func(text string) error {
			_, object, err := v.Parse([]byte(text))
			if err != nil {
				return err
			}
			return v.Validate(object)
		}
		for _, name := range cases(t) {
			t.Run(version+"/"+name, func(t *testing.T) {
				for _, d := range render(t, values(t, name)).Docs {
					if err := validate(d.Text); err != nil {
						t.Errorf("%v\n%s", err, d.Text)
					}
				}
			})
		}
		// It would say so.
		for _, wrong := range []string{"spec: {podMetricsEndpoints: [{prot: metrics}], selector: {}}", "spec: {selector: {}, sampleLimit: many}"} {
			if err := validate("apiVersion: monitoring.coreos.com/v1\nkind: PodMonitor\nmetadata: {name: a}\n" + wrong + "\n"); err == nil {
				t.Errorf("%s: a PodMonitor with %q is valid", version, wrong)
			}
		}
	}
}
