//go:build linux

package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/xds-relay/xds-relay/bench/internal/load"
	"github.com/xds-relay/xds-relay/bench/internal/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTargetsAreMeasured: each target names a workload, a variant and a server that
// make bench-peers runs.
func TestTargetsAreMeasured(t *testing.T) {
	type made struct {
		variant string
		servers []string
	}
	runs := make(map[string][]made)
	for _, c := range contests {
		w := load.Find(c.workload)
		if w == nil {
			t.Errorf("%s runs %q, which there is not", c.name, c.workload)
			continue
		}
		o := w.Defaults
		if c.change != nil {
			c.change(&o)
		}
		for _, s := range c.servers {
			if !slices.Contains(startable, s) {
				t.Errorf("%s runs against %q, which cannot be started", c.name, s)
			}
		}
		runs[c.workload] = append(runs[c.workload], made{w.Variant(o), c.servers})
	}
	for _, target := range result.Targets {
		for _, at := range []*result.At{&target.Of, target.Minus, target.Over} {
			if at == nil {
				continue
			}
			found := 0
			for _, m := range runs[at.Workload] {
				if at.Variant == m.variant && slices.Contains(m.servers, at.Server) {
					found++
				}
			}
			if found != 1 {
				t.Errorf("%s: %+v is measured %d times by bench peers", target.Name, *at, found)
			}
		}
	}
}

func TestEveryWorkloadHasAHeadline(t *testing.T) {
	for _, w := range load.Workloads {
		if len(result.Headline(w.Name)) == 0 {
			t.Errorf("the tables have nothing to say of %s", w.Name)
		}
	}
}

// TestOptionsKeepDefaults: a workload without flags is the workload as it is defined.
func TestOptionsKeepDefaults(t *testing.T) {
	for _, w := range load.Workloads {
		o := w.Defaults
		f := pflag.NewFlagSet(w.Name, pflag.ContinueOnError)
		registerOptions(f, &o)
		if err := f.Parse(nil); err != nil {
			t.Fatal(err)
		}
		want := w.Defaults
		want.PerConn = 1
		if o != want {
			t.Errorf("%s: %+v, want %+v", w.Name, o, want)
		}
	}
}

func results(cpu, floor float64) *result.File {
	f := &result.File{}
	for server, v := range map[string]float64{"relay": cpu, "floor": floor} {
		r := &result.Run{Workload: "fanout", Variant: "v", Server: server, Repetition: 1}
		r.Add("cpu_per_delivery", v, "µs")
		f.Runs = append(f.Runs, r)
	}
	return f
}

func TestAssert(t *testing.T) {
	f := results(30, 40)
	var failed *assertError
	if err := assert(f, []string{"cpu_per_delivery<=40"}); err != nil {
		t.Error(err)
	}
	if err := assert(f, []string{"cpu_per_delivery<=35"}); !errors.As(err, &failed) || !strings.Contains(err.Error(), "floor") || strings.Contains(err.Error(), "against relay") {
		t.Errorf("the floor is not within 35 µs: %v", err)
	}
	if err := assert(f, []string{"nothing<=1"}); err == nil || errors.As(err, &failed) {
		t.Errorf("a figure that there is not is a mistake of the command line: %v", err)
	}
}

func TestAssertTellsWhatNeverCame(t *testing.T) {
	for _, test := range []struct {
		assertion string
		missing   float64
		told      bool
	}{{"propagation_p99<=1ms", 3, true}, {"last_client_p50<=1ms", 3, true}, {"propagation_p99<=1ms", 0, false}, {"cpu_per_delivery<=1", 3, false}} {
		f := results(30, 40)
		for _, r := range f.Runs {
			r.Add("propagation_p99", 20000, "ms")
			r.Add("last_client_p50", 20000, "ms")
			r.Add("missing_deliveries", test.missing, "")
		}
		if err := assert(f, []string{test.assertion}); err == nil || strings.Contains(err.Error(), "never came") != test.told || test.told && !strings.Contains(err.Error(), "3 deliveries") {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// compare runs the command on two files.
func compare(t *testing.T, old, now *result.File, args ...string) (output string, err error) {
	t.Helper()
	dir := t.TempDir()
	for name, f := range map[string]*result.File{"old.json": old, "new.json": now} {
		name = filepath.Join(dir, name)
		if err := f.Write(name); err != nil {
			t.Fatal(err)
		}
	}
	cmd := newCompare()
	cmd.SetArgs(append(args, filepath.Join(dir, "old.json"), filepath.Join(dir, "new.json")))
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.Execute()
	return out.String(), err
}

func TestCompareJudges(t *testing.T) {
	for _, test := range []struct {
		cpu, floor float64
		worse      bool
	}{{30, 40, false}, {60, 80, false}, {33, 40, false}, {36, 40, true}, {30, 30, true}, {10, 40, false}} {
		out, err := compare(t, results(30, 40), results(test.cpu, test.floor), "--over", "floor", "--figures", "cpu_per_delivery", "--tolerance", "15")
		var failed *assertError
		if errors.As(err, &failed) != test.worse || !test.worse && err != nil {
			t.Errorf("%+v: %v", test, err)
		}
		if !strings.Contains(out, "relay") {
			t.Errorf("no table: %q", out)
		}
	}
}

// TestCompareJudgesAll: a guard must not pass because there was nothing to compare.
func TestCompareJudgesAll(t *testing.T) {
	with := func(workload, server, figure string) *result.File {
		f := results(30, 40)
		r := &result.Run{Workload: workload, Variant: "v", Server: server, Repetition: 1}
		r.Add(figure, 1, "")
		f.Runs = append(f.Runs, r)
		return f
	}
	none := with("named", "relay", "cpu_per_delivery")
	none.Runs[2].Figures = nil // such as of a server that delivered nothing
	both := with("named", "relay", "cpu_per_delivery")
	both.Append(with("named", "floor", "cpu_per_delivery"))
	const cpu = "--figures=cpu_per_delivery,cpu_per_cold_client"
	for _, test := range []struct {
		old, now *result.File
		args     []string
		want     string // "": it passes
	}{
		{results(30, 40), results(30, 40), []string{"--tolerance", "15", cpu}, ""},
		{results(30, 40), with("named", "relay", "cpu_per_delivery"), []string{"--tolerance", "15", cpu}, "named, v, relay: cpu_per_delivery"},
		{results(30, 40), with("named", "relay", "cpu_per_delivery"), []string{"--tolerance", "15"}, "named, v, relay"},
		{results(30, 40), with("fanout", "linear", "cpu_per_delivery"), []string{"--tolerance", "15", cpu}, "fanout, v, linear: cpu_per_delivery"},
		{results(30, 40), with("named", "relay", "cpu_per_delivery"), []string{cpu}, ""}, // nothing is judged
		{results(30, 40), with("named", "relay", "something"), []string{"--tolerance", "15", cpu}, ""},
		{with("named", "relay", "cpu_per_delivery"), results(30, 40), []string{"--tolerance", "15", cpu}, ""},
		{with("named", "relay", "cpu_per_delivery"), none, []string{"--tolerance", "15", cpu}, "named, v, relay: cpu_per_delivery"},
		// There is no floor to put it over, in one of the files or in both.
		{both, with("named", "relay", "cpu_per_delivery"), []string{"--tolerance", "15", cpu, "--over", "floor"}, "named, v, relay: cpu_per_delivery"},
		{with("named", "relay", "cpu_per_delivery"), both, []string{"--tolerance", "15", "--over", "floor"}, "named, v, relay"},
		{with("named", "relay", "cpu_per_delivery"), with("named", "relay", "cpu_per_delivery"), []string{"--tolerance", "15", cpu, "--over", "floor"}, ""},
		{with("named", "relay", "cpu_per_delivery"), with("named", "relay", "cpu_per_delivery"), []string{"--tolerance", "15", "--over", "floor"}, ""},
		{with("named", "floor", "cpu_per_delivery"), results(30, 40), []string{"--tolerance", "15", cpu, "--over", "floor"}, ""},
	} {
		out, err := compare(t, test.old, test.now, test.args...)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), "nothing to compare with") || !strings.HasSuffix(err.Error(), "\n  "+test.want)) {
			t.Errorf("%q: %v, want %q\n%s", test.args, err, test.want, out)
		}
	}
	_, err := compare(t, results(30, 40), func() *result.File {
		f := with("named", "relay", "cpu_per_delivery")
		f.Runs[0].Figures[0].Value, f.Runs[1].Figures[0].Value = 300, 400
		return f
	}(), "--tolerance", "15", cpu)
	var failed *assertError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "nothing to compare with") {
		t.Errorf("worse, and not all compared: %v", err)
	}
}

// TestCompareServersOfOneFile: it says how they stand, and judges if it is asked to.
func TestCompareServersOfOneFile(t *testing.T) {
	f := results(44, 40)
	f.Append(results(42, 40))
	f.Append(results(41, 40))
	part := results(41, 40)
	part.Runs = append(part.Runs, &result.Run{Workload: "herd", Variant: "v", Server: "relay", Figures: []result.Figure{{Name: "all_synced", Value: 1}}})
	const row = "| fanout, v | cpu_per_delivery | 1.050 (1.025–1.100) |"
	for _, test := range []struct {
		file   *result.File
		args   string
		row    string
		want   string // "": it passes
		failed bool   // a figure is, not the command line
	}{
		{f, "--over floor", row, "", false},
		{f, "--over floor --tolerance 6", row, "", false},
		{f, "--over floor --tolerance 4", row, "relay: cpu_per_delivery is 1.050 (1.025–1.100) × floor", true},
		{part, "--over floor", "| fanout, v | cpu_per_delivery | 1.025 |", "", false},
		{part, "--over floor --tolerance 4", "1.025", "not judged:\n  herd, v, relay: all_synced", false},
		{part, "--over floor --tolerance 4 --figures cpu_per_delivery", "1.025", "", false},
		{part, "--over floor --tolerance 1", "1.025", "relay: cpu_per_delivery is 1.025 × floor", true},
		{f, "", "", "give two files, or --over", false},
		{f, "--over linear", "", "one.json has ", false},
		{f, "--over floor --figures rss", "", "no server has a figure in common with floor", false},
	} {
		name := filepath.Join(t.TempDir(), "one.json")
		if err := test.file.Write(name); err != nil {
			t.Fatal(err)
		}
		cmd := newCompare()
		cmd.SetArgs(append(strings.Fields(test.args), name))
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.Execute()
		var failed *assertError
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) || errors.As(err, &failed) != test.failed {
			t.Errorf("%q: %v, want %q", test.args, err, test.want)
		}
		if !strings.Contains(out.String(), test.row) {
			t.Errorf("%q: no %q in\n%s", test.args, test.row, out.String())
		}
	}
}

// bench runs one of the commands of run, as the command line does.
func bench(args ...string) error {
	cmd := newRun()
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&bytes.Buffer{})
	return cmd.Execute()
}

func TestMistakesAreFoundBeforeARun(t *testing.T) {
	const server = "127.0.0.1:1" // where nobody is
	for _, test := range []struct{ args, want string }{
		{"fanout --assert x", `assertion "x"`},
		{"", "name a workload: there are fanout, named, herd"},
		{"fannout", `no such workload: "fannout": there are fanout, named, herd`},
		{"fannout --assert x", `no such workload: "fannout": there are fanout`},
		{"fanout --asert x", "unknown flag: --asert"},
		{"fanout --assert propagation_p98<=1ms", `there is no figure "propagation_p98"; there are allocated_per_delivery, `},
		{"fanout --assert propagation_p99<=1KiB", `--assert "propagation_p99<=1KiB": propagation_p99 is in "ms", not in "KiB"`},
		{"herd --assert propagation_p99<=1ms", `there is no figure "propagation_p99"`},
		{"fanout -o pdf", "--output pdf"},
		{"fanout --start lynx", `no such server: "lynx"`},
		{"fanout --reps 0", "--reps 0"},
		{"fanout --clients 100000000", "file"},
		{"fanout --server " + server, "with --origin or --control"},
		{"herd --server " + server + " --clients 0", "0 clients"},
		{"named --server " + server + " --origin 127.0.0.1:0 --assignments 50", "100 of 50"},
		{"fanout --server " + server + " --origin a --control b", "--origin, --control: changes come from one place"},
		{"fanout --pid 1 --metrics http://a", "--pid, --metrics: for a server that runs already"},
		{"fanout --origin " + server, "--origin: for a server that runs already"},
		{"fanout --control " + server + " --start floor", "--control: for a server that runs already"},
		{"fanout --server= --pid 1", "--server, --pid: for a server that runs already"},
		{"fanout --start floor --set a=b", "--set: floor has no such configuration"},
		{"fanout --server " + server + " --origin " + server + " --set a=b", "--set: for a server that is started here"},
		{"fanout --server " + server + " --origin " + server + " --start relay", "--start: for a server that is started here"},
	} {
		if err := bench(strings.Fields(test.args)...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.args, err, test.want)
		}
	}
}

func TestBarIsSilentWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	b := &bar{out: &out}
	b.Title("fanout")
	b.Step("connect", 0.5)
	b.Clear()
	if out.String() != "fanout\n" {
		t.Errorf("it says %q", out.String())
	}
	b = &bar{out: &out, tty: true}
	out.Reset()
	b.Title("fanout")
	b.Step("connect", 0.5)
	if got := out.String(); !strings.Contains(got, "fanout  connect    [============            ]") || strings.Contains(got, "\n") {
		t.Errorf("half way it draws %q", got)
	}
}
