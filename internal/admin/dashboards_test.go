package admin

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// board is a dashboard of deploy/grafana, as far as tests read it.
type board struct {
	file       string
	Title, UID string
	Panels     []struct {
		Title, Description string
		GridPos            struct{ X, Y, W, H int }
		Links              []struct{ Title, URL string }
		Targets            []struct{ Expr, LegendFormat string }
	}
}

func boards(t *testing.T) (all []board) {
	t.Helper()
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no dashboards: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b := board{file: filepath.Base(file)}
		if err := json.Unmarshal(data, &b); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, b)
	}
	return all
}

// TestDashboards: each panel is about metrics, and labels of these, that there are, says what it shows, and no two of them
// overlap. That their expressions are PromQL is tested with Prometheus' parser (internal/test/e2e/alerts).
func TestDashboards(t *testing.T) {
	known := make(map[string]map[string][]string)
	m := NewMetrics(Build{})
	m.Attach(newDescribed())
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		known[f.GetName()] = labels(f)
	}
	selector := regexp.MustCompile(`\b((?:xds_relay|go|process)_[a-z0-9_]+)\{([^}]*)\}`)
	named := regexp.MustCompile(`\b(?:xds_relay|go|process)_[a-z0-9_]+`)
	uids := make(map[string]string)
	for _, b := range boards(t) {
		if b.Title == "" || b.UID == "" || len(b.Panels) == 0 || uids[b.UID] != "" {
			t.Errorf("%s is %q, %q, with %d panels", b.file, b.Title, b.UID, len(b.Panels))
		}
		uids[b.UID] = b.file
		taken := make(map[[2]int]string)
		for _, p := range b.Panels {
			if p.Description == "" || len(p.Targets) == 0 {
				t.Errorf("%s: %s says nothing", b.file, p.Title)
			}
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					if other := taken[at]; other != "" || at[0] >= 24 {
						t.Fatalf("%s: %s is at %v, where %q is", b.file, p.Title, at, other)
					}
					taken[at] = p.Title
				}
			}
			for _, target := range p.Targets {
				found := selector.FindAllStringSubmatch(target.Expr, -1)
				if len(found) == 0 || len(found) != len(named.FindAllString(target.Expr, -1)) {
					t.Errorf("%s: %s: %s selects no metric, or without braces", b.file, p.Title, target.Expr)
				}
				for _, f := range found {
					values, ok := known[strings.TrimSuffix(f[1], "_bucket")]
					if !ok {
						t.Errorf("%s: %s is about %s, which there is not", b.file, p.Title, f[1])
					}
					for matcher := range strings.SplitSeq(f[2], ",") {
						label, value, _ := strings.Cut(matcher, "=")
						label, value = strings.TrimRight(label, "!"), strings.Trim(value, `~"`)
						if strings.HasPrefix(value, "$") {
							continue // of the scrape
						}
						if !slices.Contains(values[label], value) {
							t.Errorf("%s: %s: %s has no %s=%s", b.file, p.Title, f[1], label, value)
						}
					}
				}
			}
		}
	}
	for _, want := range []string{"fleet.json", "control-plane.json", "cache.json", "runtime.json"} {
		if !slices.ContainsFunc(boards(t), func(b board) bool { return b.file == want }) {
			t.Errorf("there is no %s", want)
		}
	}
}

// TestPanelsLeadToAlerts: what a panel links to is an alert that there is, at its section of operations.md, and each
// alert is linked from a panel, where its reader looks first.
func TestPanelsLeadToAlerts(t *testing.T) {
	rules, err := os.ReadFile("../../deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	linked := make(map[string]bool)
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		linked[m[1]] = false
	}
	if len(linked) < 20 {
		t.Fatalf("there are %d alerts", len(linked))
	}
	for _, b := range boards(t) {
		for _, p := range b.Panels {
			for _, l := range p.Links {
				if _, is := linked[l.Title]; !is || !strings.HasSuffix(l.URL, "/docs/operations.md#"+strings.ToLower(l.Title)) {
					t.Errorf("%s: %s links to %s, %s", b.file, p.Title, l.Title, l.URL)
				}
				linked[l.Title] = true
			}
		}
	}
	for alert, is := range linked {
		if !is {
			t.Errorf("no panel links to %s", alert)
		}
	}
}
