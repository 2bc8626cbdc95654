package admin

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestRules: the alerts are about metrics that there are, and each says what to do, in a
// section of its own.
func TestRules(t *testing.T) {
	data, err := os.ReadFile("../../deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	operations, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Expr        string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalWithOptions(data, &file); err != nil {
		t.Fatal(err)
	}
	m := NewMetrics(Build{})
	m.Attach(newDescribed())
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, f := range families {
		known[f.GetName()] = true
	}
	metric := regexp.MustCompile(`\b(xds_relay|go|process)_[a-z0-9_]+`)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			names := metric.FindAllString(r.Expr, -1)
			if len(names) == 0 {
				t.Errorf("%s is about no metric", r.Alert)
			}
			for _, name := range names {
				if !known[strings.TrimSuffix(name, "_bucket")] {
					t.Errorf("%s is about %s, which there is not", r.Alert, name)
				}
			}
			for _, key := range []string{"summary", "description"} {
				if r.Annotations[key] == "" {
					t.Errorf("%s has no %s", r.Alert, key)
				}
			}
			if s := r.Labels["severity"]; s != "warning" && s != "critical" {
				t.Errorf("%s is %q", r.Alert, s)
			}
			if url := r.Annotations["runbook_url"]; !strings.HasSuffix(url, "/docs/operations.md#"+strings.ToLower(r.Alert)) {
				t.Errorf("the runbook of %s is at %s", r.Alert, url)
			}
			if !strings.Contains(string(operations), "\n### "+r.Alert+"\n") {
				t.Errorf("docs/operations.md has no section %s", r.Alert)
			}
		}
	}
}
