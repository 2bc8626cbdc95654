package page

import (
	"os"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// TestAxe: axe-core finds no serious fault in any view, light or dark, wide or narrow. AXE names its axe.min.js.
func TestAxe(t *testing.T) {
	path := os.Getenv("AXE")
	if path == "" {
		t.Skip("AXE does not name axe-core's axe.min.js; make e2e-page gets it from npm")
	}
	axe, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w, b := twenty(t)
	w.poison()
	w.until("one rejects", func() bool { return w.relay.Summary().Sync["nacked"] == 1 })
	views := 0
	for name, path := range w.views() {
		for _, as := range []struct {
			scheme string
			width  int64
		}{{"light", 1440}, {"dark", 1440}, {"light", 390}, {"dark", 390}} {
			b.as(as.width, 900, as.scheme)
			b.open(w.url + path)
			b.do(chromedp.Evaluate(string(axe), nil))
			var faults []struct {
				ID     string `json:"id"`
				Impact string `json:"impact"`
				Where  string `json:"where"`
			}
			b.do(chromedp.Evaluate(`axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})
				.then(r => r.violations.map(v => ({id: v.id, impact: v.impact, where: v.nodes.slice(0, 3).map(n => n.target + " " + n.failureSummary.split("\n")[1]).join("; ")})))`, &faults,
				func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
			views++
			for _, f := range faults {
				t.Logf("%s, %s, %d: %s (%s): %s", name, as.scheme, as.width, f.ID, f.Impact, f.Where)
				if f.Impact == "serious" || f.Impact == "critical" {
					t.Errorf("%s, %s, %d: %s", name, as.scheme, as.width, f.ID)
				}
			}
		}
	}
	t.Logf("%d views", views)
}
