package result

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// runs are a workload against two servers, in two repetitions that differ by what
// disturbed both.
func runs() *File {
	f := &File{Machine: "m", Date: "d", Command: "c"}
	for _, r := range []struct {
		server string
		rep    int
		cpu    float64
		p50    float64
	}{{"floor", 1, 40, 10}, {"relay", 1, 30, 12}, {"chain", 1, 31, 18}, {"floor", 2, 80, 20}, {"relay", 2, 56, 22}, {"chain", 2, 60, 42}} {
		run := &Run{Workload: "fanout", Variant: all1000, Server: r.server, Repetition: r.rep}
		run.Add("cpu_per_delivery", r.cpu, "µs")
		run.Add("propagation_p50", r.p50, "ms")
		f.Runs = append(f.Runs, run)
	}
	return f
}

func TestOver(t *testing.T) {
	run := func(v float64) *Run { return &Run{Figures: []Figure{{"x", v, "ms"}}} }
	for _, test := range []struct {
		values []float64
		want   Spread
	}{
		{[]float64{3}, Spread{3, 3, 3, "ms", 1}},
		{[]float64{3, 1}, Spread{1, 2, 3, "ms", 2}},
		{[]float64{9, 1, 2}, Spread{1, 2, 9, "ms", 3}},
	} {
		var all []*Run
		for _, v := range test.values {
			all = append(all, run(v))
		}
		if got, ok := Over(append(all, &Run{}), "x"); !ok || got != test.want {
			t.Errorf("%v: %+v, want %+v", test.values, got, test.want)
		}
	}
	if _, ok := Over([]*Run{run(1)}, "y"); ok {
		t.Error("a figure that there is not")
	}
}

// TestRatiosAreTakenWithinARepetition: the second one was on a busier machine.
func TestRatiosAreTakenWithinARepetition(t *testing.T) {
	f := runs()
	s, ok := f.Measure(ratio("", "fanout", all1000, "cpu_per_delivery", "floor", 0.75, 0))
	if !ok || s.Min != 0.7 || s.Max != 0.75 || s.N != 2 {
		t.Errorf("relay ÷ floor is %+v, want 0.7 and 0.75", s)
	}
	// What a hop adds, over the floor's own: 6/10 and 20/20.
	hop := Target{Of: At{"fanout", all1000, "chain", "propagation_p50"}, Minus: &At{"fanout", all1000, "relay", "propagation_p50"}, Over: &At{"fanout", all1000, "floor", "propagation_p50"}}
	if s, ok := f.Measure(hop); !ok || s.Min != 0.6 || s.Max != 1 {
		t.Errorf("a hop is %+v, want 0.6 and 1", s)
	}
	if _, ok := f.Measure(ratio("", "fanout", all1000, "cpu_per_delivery", "linear", 1, 0)); ok {
		t.Error("a ratio to a server that did not run")
	}
	f.Runs = f.Runs[:5] // the second repetition has no chain
	if s, _ := f.Measure(hop); s.N != 1 {
		t.Errorf("a repetition that is not whole counts: %+v", s)
	}
}

// TestFilesAreNotMixed: the runs of two files are not related to each other.
func TestFilesAreNotMixed(t *testing.T) {
	cpu := ratio("", "fanout", all1000, "cpu_per_delivery", "floor", 1, 0)
	all, other := runs(), runs()
	for _, r := range other.Runs {
		r.Figures[0].Value *= 10 // another machine
	}
	all.Append(other)
	if s, _ := all.Measure(cpu); s.N != 4 || s.Min != 0.7 || s.Max != 0.75 {
		t.Errorf("relay ÷ floor is %+v, want 0.7 and 0.75, twice", s)
	}
	if n := other.Runs[0].Repetition; n != 1 || len(other.Runs) != 6 {
		t.Errorf("the other file has changed: it begins with repetition %d of %d runs", n, len(other.Runs))
	}
	floor, relay := &File{Runs: runs().Runs[:1]}, &File{Runs: runs().Runs[1:2]}
	floor.Append(relay)
	if s, ok := floor.Measure(cpu); ok {
		t.Errorf("the relay of one file is put over the floor of another: %+v", s)
	}
}

// TestVariantsAreNotMixed: other numbers of clients are other measurements.
func TestVariantsAreNotMixed(t *testing.T) {
	f := runs()
	many := &Run{Workload: "fanout", Variant: all5000, Server: "relay", Repetition: 1}
	many.Add("cpu_per_delivery", 1000, "µs")
	f.Runs = append(f.Runs, many)
	if s, _ := f.Measure(Target{Of: At{"fanout", all1000, "relay", "cpu_per_delivery"}}); s.Max != 56 {
		t.Errorf("1,000 clients reach %v", s.Max)
	}
	if s, _ := f.Measure(Target{Of: At{"fanout", all5000, "relay", "cpu_per_delivery"}}); s.N != 1 || s.Median != 1000 {
		t.Errorf("5,000 clients are %+v", s)
	}
}

func TestOutcome(t *testing.T) {
	for _, test := range []struct {
		median, limit, stretch float64
		want                   string
	}{{1, 1, 0, "met"}, {1.01, 1, 0, "missed"}, {0.7, 1, 0.8, "met, and the stretch goal"}, {0.9, 1, 0.8, "met"}, {0, 0, 0, "met"}, {1, 0, 0, "missed"}} {
		o := Outcome{Target{Limit: test.limit, Stretch: test.stretch}, Spread{Median: test.median}}
		if got := o.String(); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

func TestAssertions(t *testing.T) {
	all := runs().Runs[:1] // cpu 40 µs, p50 10 ms
	for text, holds := range map[string]bool{
		"propagation_p50<=10ms": true, "propagation_p50 <= 10": true, "propagation_p50<10ms": false, "propagation_p50>=10ms": true,
		"propagation_p50<=0.01s": true, "propagation_p50<=9.99ms": false, "propagation_p50>9ms": true, "cpu_per_delivery==40µs": true,
		"cpu_per_delivery<1ms": true, "cpu_per_delivery<40us": false,
	} {
		a, err := ParseAssertion(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		why, err := a.Check(all)
		if err != nil || (why == "") != holds {
			t.Errorf("%s: %q (%v), want holds=%v", text, why, err, holds)
		}
	}
	for _, text := range []string{"", "x", "x<=", "<=5", "x<=ms", "x!5", "x<=five"} {
		if a, err := ParseAssertion(text); err == nil {
			t.Errorf("%q is taken for %+v", text, a)
		}
	}
	for _, a := range []Assertion{{"nothing", "<=", 1, ""}, {"cpu_per_delivery", "<=", 1, "MiB"}} {
		if _, err := a.Check(all); err == nil {
			t.Errorf("%+v can be checked", a)
		}
	}
}

func TestCompare(t *testing.T) {
	old, now := runs(), runs()
	for _, r := range now.Runs { // a machine of half the speed, and a relay that lost
		for i := range r.Figures {
			r.Figures[i].Value *= 2
			if r.Server == "relay" {
				r.Figures[i].Value *= 1.5
			}
		}
	}
	find := func(all []Change, server string) Change {
		for _, c := range all {
			if c.Server == server && c.Figure == "cpu_per_delivery" {
				return c
			}
		}
		t.Fatalf("no %s in %v", server, all)
		return Change{}
	}
	if c := find(Compare(old, now, "", nil), "floor"); c.Old != 60 || c.New != 120 {
		t.Errorf("floor: %+v", c)
	}
	if c := find(Compare(old, now, "floor", nil), "chain"); c.Ratio() != 1 {
		t.Errorf("in relation to the floor nothing has changed for chain: %+v", c)
	}
	if c := find(Compare(old, now, "floor", []string{"cpu_per_delivery"}), "relay"); c.Ratio() < 1.499 || c.Ratio() > 1.501 {
		t.Errorf("in relation to the floor the relay has lost a half: %+v", c)
	}
	if all := Compare(old, now, "linear", nil); len(all) != 0 {
		t.Errorf("compared with a server that did not run: %v", all)
	}
	if all := Compare(old, &File{}, "", nil); len(all) != 0 {
		t.Errorf("compared with nothing: %v", all)
	}
}

func TestFileSurvivesTheDisk(t *testing.T) {
	f := runs()
	h := NewHistogram()
	for i := int64(1); i <= 1000; i++ {
		if err := h.RecordValue(i * 1000); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Runs[0].Distribution("propagation", h); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "new", "a.json")
	if err := f.Write(name); err != nil {
		t.Fatal(err)
	}
	back, err := Read(name)
	if err != nil {
		t.Fatal(err)
	}
	got, err := back.Runs[0].Histogram("propagation")
	if err != nil || got.TotalCount() != 1000 || got.ValueAtPercentile(50) != h.ValueAtPercentile(50) {
		t.Errorf("the histogram comes back as %v (%v)", got, err)
	}
	if v, _ := back.Runs[0].Get("propagation_p99"); v < 989 || v > 991 {
		t.Errorf("p99 is %v ms, want 990", v)
	}
	if h, err := back.Runs[1].Histogram("propagation"); h != nil || err != nil {
		t.Errorf("a histogram that there is not: %v (%v)", h, err)
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none.json")); err == nil {
		t.Error("read a file that there is not")
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := runs().WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"|  | floor | relay | chain |", "| cpu_per_delivery, µs | 60 (40–80) | 43 (30–56) | 45.5 (31–60) |",
		"| W1 CPU per delivery ÷ floor | 0.72 (0.70–0.75) | ≤ 0.75 | ≤ 0.60 | met |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	var csv bytes.Buffer
	if err := runs().WriteCSV(&csv); err != nil || strings.Count(csv.String(), "\n") != 13 {
		t.Errorf("CSV (%v):\n%s", err, csv.String())
	}
}
