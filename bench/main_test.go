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

func TestCompareJudges(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, f *result.File) string {
		name = filepath.Join(dir, name)
		if err := f.Write(name); err != nil {
			t.Fatal(err)
		}
		return name
	}
	old := write("old.json", results(30, 40))
	for _, test := range []struct {
		cpu, floor float64
		worse      bool
	}{{30, 40, false}, {60, 80, false}, {33, 40, false}, {36, 40, true}, {30, 30, true}, {10, 40, false}} {
		cmd := newCompare()
		cmd.SetArgs([]string{"--over", "floor", "--figures", "cpu_per_delivery", "--tolerance", "15", old, write("new.json", results(test.cpu, test.floor))})
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		var failed *assertError
		if err := cmd.Execute(); errors.As(err, &failed) != test.worse || !test.worse && err != nil {
			t.Errorf("%+v: %v", test, err)
		}
		if !strings.Contains(out.String(), "relay") {
			t.Errorf("no table: %q", out.String())
		}
	}
}

func TestMistakesAreFoundBeforeARun(t *testing.T) {
	for _, args := range [][]string{
		{"fanout", "--assert", "x"}, {"fanout", "-o", "pdf"}, {"fanout", "--start", "lynx"}, {"nothing"},
		{"fanout", "--server", "127.0.0.1:1", "--origin", "a", "--control", "b"}, {"fanout", "--clients", "100000000"},
	} {
		cmd := newRun()
		cmd.SetArgs(args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(&bytes.Buffer{})
		if err := cmd.Execute(); err == nil && args[0] != "nothing" {
			t.Errorf("%q runs", args)
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
