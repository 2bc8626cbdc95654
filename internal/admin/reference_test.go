package admin

//go:generate go test -run TestMetricsReference -update .

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/xds-relay/xds-relay/upstream/session"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

// reference is where the list of metrics is.
const reference = "../../docs/metrics.md"

// own are the relay's own metrics, as they are before anything has happened.
func own(t *testing.T) (families []*dto.MetricFamily) {
	t.Helper()
	m := NewMetrics(Build{})
	m.Attach(newDescribed())
	all, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if strings.HasPrefix(f.GetName(), prefix) {
			families = append(families, f)
		}
	}
	return families
}

// labels are the names of a metric's labels, and the values that each has.
func labels(f *dto.MetricFamily) map[string][]string {
	values := make(map[string][]string)
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if !slices.Contains(values[l.GetName()], l.GetValue()) {
				values[l.GetName()] = append(values[l.GetName()], l.GetValue())
			}
		}
	}
	return values
}

// open are the labels whose values are not fixed, with what they are. They are few in one
// relay: the configuration bounds addresses, and maxGroupLabels bounds groups.
var open = map[string]string{
	"address": "as configured", "group": "as in /groups", "service": "as configured",
	"version": "", "revision": "", "goversion": "", "protos": "",
}

// closed are the labels whose values are fixed.
var closed = []string{"type", "protocol", "reason", "role", "mode", "result", "op", "kind", "state", "cause", "what", "operation", "file", "hop", "told", "over", "code", "direction"}

// TestNames: each metric of the relay is called and described as Prometheus has it, and has
// no label that is not known here.
func TestNames(t *testing.T) {
	families := own(t)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, f := range families {
		help := f.GetHelp()
		if !strings.HasSuffix(help, ".") || strings.ToUpper(help[:1]) != help[:1] {
			t.Errorf("the help of %s is not a sentence: %s", f.GetName(), help)
		}
		if total := strings.HasSuffix(f.GetName(), "_total"); total != (f.GetType() == dto.MetricType_COUNTER) {
			t.Errorf("%s is a %v", f.GetName(), f.GetType())
		}
		for label := range labels(f) {
			if _, ok := open[label]; !ok && !slices.Contains(closed, label) {
				t.Errorf("%s has the label %s: is it bounded?", f.GetName(), label)
			}
		}
	}
}

// TestMetricsReference: docs/metrics.md lists what there is. go generate writes it.
func TestMetricsReference(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Metrics

<!-- Written by go generate ./internal/admin; edit the help texts there. -->

` + "`/metrics`" + ` has these, and the metrics of the Go runtime (` + "`go_*`" + `) and of the process (` + "`process_*`" + `). The values of labels are closed sets: no metric has a label
for a client, a node or a resource. All series exist from the start, with the value 0. [deploy/prometheus/rules.yaml](../deploy/prometheus/rules.yaml) has alerts on them,
and [operations.md](operations.md#alerts) says what to do about each.

Types are ` + "`CDS`, `EDS`, `LDS`, `RDS`" + ` and so on, and ` + "`other`" + ` for those that the relay has no name for.

| Metric | Kind | Labels | What it says |
|---|---|---|---|
`)
	for _, f := range own(t) {
		var names []string
		values := labels(f)
		for _, label := range slices.Sorted(maps.Keys(values)) {
			text := "`" + label + "`"
			switch what, isOpen := open[label]; {
			case isOpen && what != "":
				text += " (" + what + ")"
			case !isOpen && label != "type":
				slices.Sort(values[label])
				text += ": " + strings.Join(values[label], ", ")
			}
			names = append(names, text)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(names, "; "), strings.ReplaceAll(f.GetHelp(), "|", "\\|"))
	}
	if *update {
		if err := os.WriteFile(reference, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(reference)
	if err != nil || string(got) != b.String() {
		t.Errorf("docs/metrics.md is not what the registry says; run go generate ./internal/admin (%v)", err)
	}
}

// TestUpstreamUp: the one metric to alert on is 0 as soon as one group is not kept current,
// and groups beyond a number are counted together.
func TestUpstreamUp(t *testing.T) {
	states := map[string]session.State{}
	r := grouped{newDescribed(), states}
	m := NewMetrics(Build{})
	m.Attach(r)
	group := func(name string, c session.Condition) {
		states[name] = session.State{Entries: []session.EntryState{{Name: "a:1", InUse: true, Condition: c}, {Name: "b:1", Condition: session.Standby}}}
	}
	says := func(series ...string) {
		t.Helper()
		body := scrape(t, m)
		for _, s := range series {
			if !strings.Contains(body, "\n"+prefix+s+"\n") {
				t.Errorf("%s is not there", s)
			}
		}
	}
	says(`upstream_up 1`, `upstream_groups{state="down"} 0`, `upstream_state{address="a:1",group="default",state="down"} 0`)
	group("default", session.Idle)
	for i := range 150 {
		group(fmt.Sprintf("%016x", i), session.UpToDate)
	}
	says(`upstream_up 1`, `upstream_groups{state="current"} 150`, `upstream_groups{state="idle"} 1`,
		`upstream_state{address="a:1",group="default",state="idle"} 1`, `upstream_state{address="b:1",group="default",state="standby"} 1`,
		`upstream_state{address="a:1",group="0000000000000062",state="current"} 1`, `upstream_state{address="a:1",group="other",state="current"} 51`)
	for _, c := range []session.Condition{session.Waiting, session.Mute, session.Refused, session.Down} {
		group(fmt.Sprintf("%016x", 149), c)
		says(`upstream_up 0`, fmt.Sprintf(`upstream_groups{state="%s"} 1`, c), fmt.Sprintf(`upstream_state{address="a:1",group="other",state="%s"} 1`, c))
	}
	if body := scrape(t, m); strings.Contains(body, fmt.Sprintf("%016x", 149)) {
		t.Error("a group beyond those that are labelled has a series")
	}
	clear(states)
	says(`upstream_up 1`, `upstream_groups{state="down"} 0`)
	if body := scrape(t, m); strings.Contains(body, `group="0000`) {
		t.Error("groups that are gone have series")
	}
}

// grouped is a relay with some groups.
type grouped struct {
	described
	states map[string]session.State
}

func (g grouped) Upstream() map[string]session.State { return g.states }
