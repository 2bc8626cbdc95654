//go:build linux

package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// report is what a target's run has measured. It is written to
// bench/results/chaos-<target>.json by a long run, and to a temporary directory by
// a short one.
type report struct {
	t     testing.TB
	fleet *fleet
	name  string    // of a part
	parts []*report // in the order in which they were begun

	ID      string   `json:"id"`
	Target  string   `json:"target"`
	Form    string   `json:"form"`
	Passed  bool     `json:"passed"`
	Figures []figure `json:"figures"`
	Load    string   `json:"load"`
	Notes   []string `json:"notes,omitempty"`
	Command string   `json:"command"`
	Date    string   `json:"date"`
	Seconds float64  `json:"seconds"`
	Machine string   `json:"machine"`
	// Busy is the load average of the machine, of 1 and 15 minutes, at the end: what
	// takes long on a machine that is busy with other things says little.
	Busy string `json:"load_average"`
}

// figure is one number. One without a limit is told, not judged.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
	Limit string  `json:"limit,omitempty"`
	OK    *bool   `json:"ok,omitempty"`
}

// begin opens the report of a target; it is written when the test ends.
func begin(t *testing.T, id, target, load string) *report {
	t.Helper()
	r := &report{t: t, ID: id, Target: target, Load: load, Form: "short", Passed: true, Machine: machine()}
	dir := t.TempDir()
	if long() {
		r.Form, dir = "long", filepath.Join("..", "..", "..", "bench", "results")
	} else {
		t.Parallel() // mostly they wait
	}
	r.Command = "make chaos RUN=" + id
	// The system call returns 20 less the niceness.
	if p, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && p > 20 {
		r.note("run at nice %d, before the other work of a shared machine", 20-p)
	}
	start := time.Now()
	r.Date = start.UTC().Format(time.RFC3339)
	t.Cleanup(func() {
		for _, p := range r.parts {
			r.Passed = r.Passed && p.Passed
			for _, f := range p.Figures {
				f.Name = p.name + ": " + f.Name
				r.Figures = append(r.Figures, f)
			}
			for _, n := range p.Notes {
				r.note("%s: %s", p.name, n)
			}
		}
		r.Seconds = time.Since(start).Round(time.Second / 10).Seconds()
		r.Passed = r.Passed && !t.Failed()
		r.Busy = loadAverage()
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		err := e.Encode(r)
		if err == nil {
			err = os.MkdirAll(dir, 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "chaos-"+id+".json"), text.Bytes(), 0o644)
		}
		if err != nil {
			t.Errorf("write the report: %v", err)
		}
		t.Logf("%s", r)
	})
	return r
}

// part runs a share of a target, beside the others, which has processes of its own;
// its figures stand in the target's report under its name.
func (r *report) part(t *testing.T, name string, run func(*testing.T, *report)) {
	p := &report{ID: r.ID, name: name, Passed: true}
	r.parts = append(r.parts, p)
	t.Run(strings.ReplaceAll(name, ", ", ","), func(t *testing.T) {
		t.Parallel() // in the long form, too: mostly they wait
		p.t = t
		run(t, p)
	})
}

// String lists the figures, one a line.
func (r *report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s form:", r.ID, r.Form)
	for _, f := range r.Figures {
		fmt.Fprintf(&b, "\n  %-70s %v %s", f.Name, f.Value, f.Unit)
		if f.OK != nil {
			fmt.Fprintf(&b, "  (%s: %v)", f.Limit, *f.OK)
		}
	}
	return b.String()
}

// note adds a remark.
func (r *report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// tell adds a figure that has no limit.
func (r *report) tell(name string, value float64, unit string) {
	r.Figures = append(r.Figures, figure{Name: name, Value: value, Unit: unit})
}

// none adds a count that must be 0 on any machine and in any form.
func (r *report) none(name string, n int64) {
	r.t.Helper()
	r.add(name, float64(n), "", "0", n == 0)
	if n != 0 {
		r.t.Errorf("%s: %s: %d, must be 0%s", r.ID, name, n, r.trouble())
	}
}

// holds adds a count that must be so on any machine and in any form.
func (r *report) holds(name string, value float64, unit, limit string, ok bool) {
	r.t.Helper()
	r.add(name, value, unit, limit, ok)
	if !ok {
		r.t.Errorf("%s: %s: %v %s, must be %s%s", r.ID, name, value, unit, limit, r.trouble())
	}
}

// below adds a figure whose limit depends on the machine: it is judged only in the
// long form.
func (r *report) below(name string, value, limit float64, unit string) {
	r.t.Helper()
	r.within(name, value, unit, fmt.Sprintf("< %g", limit), value < limit)
}

// within is below for other limits.
func (r *report) within(name string, value float64, unit, limit string, ok bool) {
	r.t.Helper()
	r.add(name, value, unit, limit, ok)
	if !ok && long() {
		r.t.Errorf("%s: %s: %v %s, must be %s", r.ID, name, value, unit, limit)
	}
}

func (r *report) add(name string, value float64, unit, limit string, ok bool) {
	r.Passed = r.Passed && ok
	r.Figures = append(r.Figures, figure{name, value, unit, limit, &ok})
}

func (r *report) trouble() string {
	if r.fleet == nil {
		return ""
	}
	return r.fleet.trouble()
}

// sound adds what must never be, whatever happens to processes and networks.
func (r *report) sound() {
	r.t.Helper()
	f := r.fleet
	r.none("lost final states", int64(f.Lost()))
	r.none("spurious removals", f.spurious.Load())
	r.none("older after newer (G2)", f.regressions.Load())
	r.none("resources that upstream never sent (G1)", f.inventions.Load())
	r.none("unchanged resources sent again on one stream (G5)", f.repeats.Load())
	r.tell("removals heard", float64(f.removals.Load()), "")
	r.tell("responses", float64(f.responses.Load()), "")
}

// connected adds that no stream has ended.
func (r *report) connected() {
	r.t.Helper()
	r.none("client disconnects", r.fleet.disconnects.Load())
}

// durations are how long something took, each time.
type durations []time.Duration

func (d *durations) add(t time.Duration) { *d = append(*d, t) }

// spread adds the median, the 90th percentile and the slowest of them; the slowest is
// judged, in seconds.
func (r *report) spread(name string, d durations, limit float64) {
	r.t.Helper()
	slices.Sort(d)
	r.tell(name+": median", seconds(d[len(d)/2]), "s")
	r.tell(name+": p90", seconds(d[len(d)*9/10]), "s")
	r.below(name+": slowest", seconds(d[len(d)-1]), limit, "s")
}

// compare adds the times from a step to its arrival, without and with a nuisance:
// the others' p99 may change by less than 10 %. Quantiles are medians over slices of
// time.
func (r *report) compare(without, with *latencies, nuisance string) {
	r.t.Helper()
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50", .5}, {"p99", .99}} {
		r.tell(q.name+" from update to client, without "+nuisance+", median of slices", millis(without.at(q.at)), "ms")
		r.tell(q.name+" from update to client, with "+nuisance+", median of slices", millis(with.at(q.at)), "ms")
	}
	r.tell("deliveries measured without "+nuisance, float64(without.count()), "")
	r.tell("deliveries measured with "+nuisance, float64(with.count()), "")
	if p99 := without.at(.99); p99 > 0 {
		r.below("others' p99 grows by", 100*(float64(with.at(.99))/float64(p99)-1), 10, "%")
	}
}

func seconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e6 }

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

func loadAverage() string {
	var info unix.Sysinfo_t
	_ = unix.Sysinfo(&info) // zero is as good as unknown
	return fmt.Sprintf("%.1f, %.1f", float64(info.Loads[0])/(1<<16), float64(info.Loads[2])/(1<<16))
}

// machine describes what all of this ran on.
func machine() string {
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				model = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
				break
			}
		}
	}
	var info unix.Sysinfo_t
	_ = unix.Sysinfo(&info) // zero is as good as unknown
	race := ""
	if peer.Race {
		race = ", race detector"
	}
	return fmt.Sprintf("%d x %s, %d MiB, %s/%s, %s%s; relay, control plane and clients on one machine, which others use, too",
		runtime.NumCPU(), model, uint64(info.Totalram)*uint64(info.Unit)>>20, runtime.GOOS, runtime.GOARCH, runtime.Version(), race)
}
