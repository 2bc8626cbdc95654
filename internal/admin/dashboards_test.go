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

// TestDashboards: each panel is about metrics, and labels of these, that there are, says what it shows, and no two of them
// overlap.
func TestDashboards(t *testing.T) {
	known := make(map[string]map[string][]string)
	for _, f := range own(t) {
		known[f.GetName()] = labels(f)
	}
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no dashboards: %v", err)
	}
	selector := regexp.MustCompile(`\b(xds_relay_[a-z0-9_]+)\{([^}]*)\}`)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Title, UID string
			Panels     []struct {
				Title, Description string
				GridPos            struct{ X, Y, W, H int }
				Targets            []struct{ Expr, LegendFormat string }
			}
		}
		if err := json.Unmarshal(data, &board); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if board.Title == "" || board.UID == "" || len(board.Panels) == 0 {
			t.Errorf("%s is %q, %q, with %d panels", file, board.Title, board.UID, len(board.Panels))
		}
		taken := make(map[[2]int]string)
		for _, p := range board.Panels {
			if p.Description == "" || len(p.Targets) == 0 {
				t.Errorf("%s: %s says nothing", file, p.Title)
			}
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					if other := taken[at]; other != "" || at[0] >= 24 {
						t.Fatalf("%s: %s is at %v, where %q is", file, p.Title, at, other)
					}
					taken[at] = p.Title
				}
			}
			for _, target := range p.Targets {
				found := selector.FindAllStringSubmatch(target.Expr, -1)
				if len(found) == 0 || len(found) != strings.Count(target.Expr, prefix) {
					t.Errorf("%s: %s: %s selects no metric, or without braces", file, p.Title, target.Expr)
				}
				for _, f := range found {
					values, ok := known[strings.TrimSuffix(f[1], "_bucket")]
					if !ok {
						t.Errorf("%s: %s is about %s, which there is not", file, p.Title, f[1])
					}
					for matcher := range strings.SplitSeq(f[2], ",") {
						label, value, _ := strings.Cut(matcher, "=")
						label, value = strings.TrimRight(label, "!"), strings.Trim(value, `~"`)
						if strings.HasPrefix(value, "$") {
							continue // of the scrape
						}
						if !slices.Contains(values[label], value) {
							t.Errorf("%s: %s: %s has no %s=%s", file, p.Title, f[1], label, value)
						}
					}
				}
			}
		}
	}
}
