package result

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// At says where a figure stands: in which variant of a workload, of which server.
type At struct{ Workload, Variant, Server, Figure string }

// Target is a limit for a figure, or for its ratio to another one.
type Target struct {
	Name string
	Of   At
	// Minus, if given, is taken from Of first.
	Minus *At
	// Over, if given, is what the rest is divided by.
	Over           *At
	Limit, Stretch float64 // Stretch 0: none
	Unit           string  // of what is not a ratio
}

// The variants that targets are for.
const (
	all1000   = "1000 clients, 1000 clusters"
	all5000   = "5000 clients, 1000 clusters"
	all10000  = "10000 clients, 1000 clusters, 0.5 changes a second"
	some1000  = "1000 clients, 10000 assignments"
	seldom    = "1000 clients, 1000 clusters, 1 changes a second"
	all100    = "100 clients, 1000 clusters"
	few1000   = "20 clients, 1000 clusters, 100 changes a second"
	few100000 = "20 clients, 100000 clusters, 100 changes a second"
)

func ratio(name string, workload, variant, figure, over string, limit, stretch float64) Target {
	return Target{
		Name: name, Of: At{workload, variant, "relay", figure}, Over: &At{workload, variant, over, figure}, Limit: limit, Stretch: stretch,
	}
}

// Targets are the project's, all ratios taken within one file.
var Targets = []Target{
	ratio("W1 CPU per delivery ÷ floor", "fanout", all1000, "cpu_per_delivery", "floor", 0.75, 0.60),
	ratio("W1 CPU per delivery ÷ floor-fixed", "fanout", all1000, "cpu_per_delivery", "floor-fixed", 1.2, 0),
	ratio("W1 CPU per delivery ÷ linear", "fanout", all1000, "cpu_per_delivery", "linear", 0.2, 0),
	ratio("W1 CPU per delivery ÷ snapshot", "fanout", all1000, "cpu_per_delivery", "snapshot", 0.1, 0),
	ratio("W1 at 1 change a second, CPU per delivery ÷ snapshot", "fanout", seldom, "cpu_per_delivery", "snapshot", 0.1, 0),
	ratio("W1 last client of an update, p50 ÷ floor", "fanout", all1000, "last_client_p50", "floor", 1.3, 1.0),
	ratio("W1, 5,000 clients, CPU per delivery ÷ floor", "fanout", all5000, "cpu_per_delivery", "floor", 0.75, 0.60),
	ratio("W1, 5,000 clients, CPU per delivery ÷ floor-fixed", "fanout", all5000, "cpu_per_delivery", "floor-fixed", 1.2, 0),
	ratio("W2 CPU per delivery ÷ floor", "named", some1000, "cpu_per_delivery", "floor", 0.9, 0.7),
	ratio("W3 CPU per cold client ÷ floor", "herd", all1000, "cpu_per_cold_client", "floor", 1.3, 0),
	{
		Name: "W3 peak RSS per client ÷ idle client", Limit: 1.5,
		Of: At{"herd", all1000, "relay", "rss_peak_per_client"}, Over: &At{"memory", all1000, "relay", "rss_per_client"},
	},
	{Name: "W4 resource bytes sent", Of: At{"reconnect", all1000, "relay", "resource_bytes_per_client"}, Limit: 0, Unit: "B"},
	ratio("W5 RSS per idle client ÷ floor", "memory", all1000, "rss_per_client", "floor", 1.15, 0.7),
	{Name: "W5 heap per (client, name)", Of: At{"names", some1000, "relay", "heap_per_client_and_name"}, Limit: 24, Stretch: 12, Unit: "B"},
	ratio("SotW full-state update, CPU per client ÷ floor", "sotw", all100, "cpu_per_response", "floor", 1.3, 0),
	{
		Name: "one change, cost at 100,000 ÷ 1,000 resources", Limit: 1.1,
		Of:   At{"fanout", few100000, "relay", "cpu_per_delivery"},
		Over: &At{"fanout", few1000, "relay", "cpu_per_delivery"},
	},
	{
		Name: "one change, cost per delivery at 10,000 ÷ 100 clients", Limit: 1.2,
		Of:   At{"fanout", all10000, "relay", "cpu_per_delivery"},
		Over: &At{"fanout", all100, "relay", "cpu_per_delivery"},
	},
	{
		Name: "added p50 of a hop ÷ the floor's own", Limit: 1,
		Of:    At{"fanout", all1000, "chain", "propagation_p50"},
		Minus: &At{"fanout", all1000, "relay", "propagation_p50"},
		Over:  &At{"fanout", all1000, "floor", "propagation_p50"},
	},
	{Name: "R5 p50, 1,000 clients", Of: At{"fanout", all1000, "relay", "propagation_p50"}, Limit: 40, Unit: "ms"},
	{Name: "R5 p99, 1,000 clients", Of: At{"fanout", all1000, "relay", "propagation_p99"}, Limit: 150, Unit: "ms"},
	{Name: "R5 last client, p50, 1,000 clients", Of: At{"fanout", all1000, "relay", "last_client_p50"}, Limit: 250, Unit: "ms"},
	{Name: "R6 last client, p50, 10,000 clients", Of: At{"fanout", all10000, "relay", "last_client_p50"}, Limit: 2000, Unit: "ms"},
	{Name: "R9 RSS per idle client", Of: At{"memory", all1000, "relay", "rss_per_client"}, Limit: 48, Unit: "KiB"},
	{Name: "R10 5,000 clients at once, all synced", Of: At{"herd", all5000, "relay", "all_synced"}, Limit: 10, Unit: "s"},
	{Name: "R10 the same, extra bytes from upstream", Of: At{"herd", all5000, "relay", "upstream_extra_bytes"}, Limit: 0, Unit: "B"},
}

// Outcome is how a target was met.
type Outcome struct {
	Target
	Spread
}

// Met says whether the median is within the limit.
func (o Outcome) Met() bool { return o.Median <= o.Limit }

// String says how, in a word.
func (o Outcome) String() string {
	switch {
	case !o.Met():
		return "missed"
	case o.Stretch > 0 && o.Median <= o.Stretch:
		return "met, and the stretch goal"
	}
	return "met"
}

// Outcomes judges the targets that the runs of a file say something about.
func (f *File) Outcomes() (all []Outcome) {
	for _, t := range Targets {
		if s, ok := f.Measure(t); ok {
			all = append(all, Outcome{t, s})
		}
	}
	return all
}

// Measure is a target's figure over the repetitions: each is put in relation to the run
// of the same repetition, which was made at about the same time.
func (f *File) Measure(t Target) (s Spread, ok bool) {
	of := f.find(t.Of)
	var values []*Run
	for rep, v := range of {
		if t.Minus != nil {
			m, ok := f.find(*t.Minus)[rep]
			if !ok {
				continue
			}
			v -= m
		}
		if t.Over != nil {
			o, ok := f.find(*t.Over)[rep]
			if !ok || o == 0 {
				continue
			}
			v /= o
		}
		values = append(values, &Run{Figures: []Figure{{"", v, t.Unit}}})
	}
	return Over(values, "")
}

// find is the values of a figure by repetition.
func (f *File) find(a At) map[int]float64 {
	found := make(map[int]float64)
	for _, r := range f.Runs {
		if r.Key() != (Key{a.Workload, a.Variant, a.Server}) {
			continue
		}
		if v, ok := r.Get(a.Figure); ok {
			found[r.Repetition] = v
		}
	}
	return found
}

// Assertion is a limit that a user gives: name<=value, with a unit if one likes.
type Assertion struct {
	Figure, Op string
	Value      float64
	Unit       string
}

// ops are the comparisons, longer ones first.
var ops = []string{"<=", ">=", "==", "<", ">"}

// ParseAssertion reads an assertion.
func ParseAssertion(text string) (a Assertion, err error) {
	i := strings.IndexAny(text, "<>=")
	if i < 0 {
		return a, fmt.Errorf("assertion %q: write a figure, one of %s, and a value, such as propagation_p99<=250ms", text, strings.Join(ops, " "))
	}
	for _, op := range ops {
		if strings.HasPrefix(text[i:], op) {
			a.Figure, a.Op = strings.TrimSpace(text[:i]), op
			break
		}
	}
	if a.Figure == "" || a.Op == "" {
		return a, fmt.Errorf("assertion %q: write a figure, one of %s, and a value", text, strings.Join(ops, " "))
	}
	value := strings.TrimSpace(text[i+len(a.Op):])
	n := strings.LastIndexAny(value, "0123456789.") + 1
	if _, err := fmt.Sscanf(value[:n], "%g", &a.Value); err != nil {
		return a, fmt.Errorf("assertion %q: %q is no number", text, value[:n])
	}
	a.Unit = strings.TrimSpace(value[n:])
	return a, nil
}

// Fits says why no run can have the figure of an assertion, where the figures that there
// may be are known with their units; nil if one may.
func (a Assertion) Fits(figures map[string]string) error {
	unit, ok := figures[a.Figure]
	if !ok {
		return fmt.Errorf("there is no figure %q; there are %s", a.Figure, strings.Join(slices.Sorted(maps.Keys(figures)), ", "))
	}
	_, err := a.limit(unit)
	return err
}

// limit is the value of an assertion in a unit.
func (a Assertion) limit(unit string) (float64, error) {
	if a.Unit == "" || a.Unit == unit {
		return a.Value, nil
	}
	factor, ok := units[[2]string{a.Unit, unit}]
	if !ok {
		return 0, fmt.Errorf("%s is in %q, not in %q", a.Figure, unit, a.Unit)
	}
	return a.Value * factor, nil
}

// Check says why runs fail an assertion, by their medians; "" if they do not.
func (a Assertion) Check(runs []*Run) (string, error) {
	s, ok := Over(runs, a.Figure)
	if !ok {
		return "", fmt.Errorf("there is no figure %q; there are %s", a.Figure, strings.Join(names(runs), ", "))
	}
	limit, err := a.limit(s.Unit)
	if err != nil {
		return "", err
	}
	holds := map[string]bool{
		"<=": s.Median <= limit, ">=": s.Median >= limit, "==": s.Median == limit, "<": s.Median < limit, ">": s.Median > limit,
	}[a.Op]
	if holds {
		return "", nil
	}
	return fmt.Sprintf("%s is %s %s, must be %s %g %s", a.Figure, Number(s.Median), s.Unit, a.Op, a.Value, a.Unit), nil
}

// units are the factors from the unit of an assertion to that of a figure.
var units = map[[2]string]float64{
	{"s", "ms"}: 1e3, {"ms", "s"}: 1e-3, {"us", "µs"}: 1, {"ms", "µs"}: 1e3, {"µs", "ms"}: 1e-3, {"us", "ms"}: 1e-3,
	{"MiB", "KiB"}: 1024, {"KiB", "MiB"}: 1.0 / 1024, {"KiB", "B"}: 1024, {"MiB", "B"}: 1 << 20, {"B", "KiB"}: 1.0 / 1024,
}

func names(runs []*Run) (all []string) {
	for _, r := range runs {
		for _, f := range r.Figures {
			if !slices.Contains(all, f.Name) {
				all = append(all, f.Name)
			}
		}
	}
	return all
}

// Number writes a number with three digits that count.
func Number(v float64) string {
	switch a := max(v, -v); {
	case v == float64(int64(v)):
		return fmt.Sprintf("%d", int64(v))
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
