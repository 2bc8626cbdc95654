package alerts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// TestDashboards: the expression of each panel of deploy/grafana is PromQL, and selects only metrics that docs/metrics.md
// lists, which are those that are registered, or the metrics of the Go runtime and the process.
func TestDashboards(t *testing.T) {
	doc, err := os.ReadFile("../../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| `(xds_relay_\\w+)`").FindAllStringSubmatch(string(doc), -1) {
		known[m[1]] = true
	}
	files, err := filepath.Glob("../../../../deploy/grafana/*.json")
	if err != nil || len(files) < 4 || len(known) < 50 {
		t.Fatalf("%d dashboards, %d metrics: %v", len(files), len(known), err)
	}
	// What Grafana puts in place of its variables.
	variables := strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "5m")
	expressions := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(data, &board); err != nil {
			t.Fatal(err)
		}
		for _, p := range board.Panels {
			for _, target := range p.Targets {
				expressions++
				expr, err := parser.ParseExpr(variables.Replace(target.Expr))
				if err != nil {
					t.Errorf("%s: %s: %s: %v", filepath.Base(file), p.Title, target.Expr, err)
					continue
				}
				parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
					s, ok := n.(*parser.VectorSelector)
					if !ok {
						return nil
					}
					ours := strings.HasPrefix(s.Name, "xds_relay_")
					if ours && !known[strings.TrimSuffix(s.Name, "_bucket")] || !ours && !strings.HasPrefix(s.Name, "go_") && !strings.HasPrefix(s.Name, "process_") {
						t.Errorf("%s: %s is about %q, which there is not", filepath.Base(file), p.Title, s.Name)
					}
					return nil
				})
			}
		}
	}
	t.Logf("%d expressions", expressions)
}
