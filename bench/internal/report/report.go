// Package report owns the page that shows results in a browser: one file that loads
// nothing, with plots that say beside them how to read them. It computes no figures of
// its own.
package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/xds-relay/xds-relay/bench/internal/result"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

type view struct {
	*result.File
	Versions []string
	Outcomes []outcome
	Sections []section
}

// outcome is a target, and how it was met.
type outcome struct {
	Name, Measured, Limit, Stretch, Word, Class string
}

// section is a workload and a variant.
type section struct {
	Title, Anchor string
	Head          []string
	Rows          [][]string
	Bars, Charts  []chart
	Figures       []row
}

type chart struct {
	Title, Reading string
	SVG            template.HTML
}

// row is a figure in the tables, of all servers.
type row struct {
	Name   string
	Values []string
}

// Write writes the page.
func Write(w io.Writer, f *result.File) error {
	v := view{File: f}
	for name, version := range f.Versions {
		v.Versions = append(v.Versions, name+" "+version)
	}
	slices.Sort(v.Versions)
	for _, o := range f.Outcomes() {
		row := outcome{Name: o.Name, Measured: text(o.Spread), Limit: "≤ " + result.Number(o.Limit), Word: o.String(), Class: "missed"}
		if o.Met() {
			row.Class = "met"
		}
		if o.Stretch > 0 {
			row.Stretch = "≤ " + result.Number(o.Stretch)
		}
		v.Outcomes = append(v.Outcomes, row)
	}
	keys, runs := f.Group()
	type place struct{ workload, variant string }
	var done []place
	for _, k := range keys {
		p := place{k.Workload, k.Variant}
		if slices.Contains(done, p) {
			continue
		}
		done = append(done, p)
		var servers []result.Key
		for _, other := range keys {
			if other.Workload == k.Workload && other.Variant == k.Variant {
				servers = append(servers, other)
			}
		}
		s, err := makeSection(len(done), servers, runs)
		if err != nil {
			return err
		}
		v.Sections = append(v.Sections, s)
	}
	return page.Execute(w, v)
}

func text(s result.Spread) string {
	t := result.Number(s.Median)
	if s.N > 1 {
		t += fmt.Sprintf(" (%s–%s)", result.Number(s.Min), result.Number(s.Max))
	}
	return strings.TrimSpace(t + " " + s.Unit)
}

// titles say what figures are, where they are drawn.
var titles = map[string]string{
	"cpu_per_delivery":         "CPU time of the server for one change to one client",
	"cpu_per_response":         "CPU time of the server for one response",
	"cpu_per_cold_client":      "CPU time of the server for one client that connects",
	"rss_per_client":           "Resident memory of an idle client",
	"heap_per_client_and_name": "Heap of one name that one client subscribed to",
	"all_synced":               "Until every client was served",
}

func makeSection(n int, keys []result.Key, runs map[result.Key][]*result.Run) (section, error) {
	workload := keys[0].Workload
	s := section{Title: workload + ", " + keys[0].Variant, Anchor: fmt.Sprintf("s%d", n), Head: []string{""}}
	for _, k := range keys {
		s.Head = append(s.Head, k.Server)
	}
	for _, name := range result.Headline(workload) {
		cells, all := values(name, keys, runs)
		if len(all) == 0 {
			continue
		}
		s.Rows = append(s.Rows, append([]string{name}, cells...))
		if title, ok := titles[name]; ok && len(all) > 1 {
			s.Bars = append(s.Bars, chart{title, "Shorter is better. The line is the spread of the repetitions.", template.HTML(bars(all))})
		}
	}
	for _, d := range []struct{ name, title, reading string }{
		{"propagation", "From a change to a client", "At 99 % stands the time in which a change had reached all but one client in a hundred. Lower is better; time counts from when the change was meant to happen."},
		{"last_client", "From a change to the last client", "At 90 % stands the time in which nine of ten changes had reached everybody."},
		{"sync", "From connecting to being served", "At 99 % stands the time in which all but one client in a hundred had all they asked for."},
	} {
		c, err := percentilePlot(d.name, keys, runs)
		if err != nil {
			return s, err
		}
		if c != "" {
			s.Charts = append(s.Charts, chart{d.title, d.reading, c})
		}
	}
	s.Charts = append(s.Charts, timePlots(keys, runs)...)
	var names []string
	for _, k := range keys {
		for _, r := range runs[k] {
			for _, f := range r.Figures {
				if !slices.Contains(names, f.Name) {
					names = append(names, f.Name)
				}
			}
		}
	}
	for _, name := range names {
		cells, _ := values(name, keys, runs)
		s.Figures = append(s.Figures, row{name, cells})
	}
	return s, nil
}

// values are a figure of all servers, as cells of a table and, of those that have it,
// as bars.
func values(name string, keys []result.Key, runs map[result.Key][]*result.Run) (cells []string, all []bar) {
	for _, k := range keys {
		s, ok := result.Over(runs[k], name)
		if !ok {
			cells = append(cells, "–")
			continue
		}
		cells = append(cells, text(s))
		all = append(all, bar{k.Server, s})
	}
	return cells, all
}

// percentilePlot draws a distribution, all repetitions together, of all servers; "" if
// nobody has it.
func percentilePlot(name string, keys []result.Key, runs map[result.Key][]*result.Run) (template.HTML, error) {
	var all []series
	lo, hi := math.Inf(1), 0.0
	for _, k := range keys {
		merged := result.NewHistogram()
		for _, r := range runs[k] {
			h, err := r.Histogram(name)
			if err != nil {
				return "", err
			}
			if h != nil {
				merged.Merge(h)
			}
		}
		if merged.TotalCount() == 0 {
			continue
		}
		s := series{name: k.Server}
		// No further than there are values to tell of.
		for x := 0.0; x <= math.Min(percentiles.hi, math.Log10(float64(merged.TotalCount()))); x += 0.05 {
			ms := float64(merged.ValueAtPercentile(100*(1-math.Pow(10, -x)))) / 1e3
			s.points = append(s.points, point{x, ms})
			lo, hi = math.Min(lo, ms), math.Max(hi, ms)
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return "", nil
	}
	return template.HTML(plot(all, percentiles, logarithmic(lo, hi, "ms"), "percentile", "milliseconds")), nil
}

// timePlots draw how the servers' processes were over time, in the first repetition.
func timePlots(keys []result.Key, runs map[result.Key][]*result.Run) (charts []chart) {
	var rss, cpu []series
	var seconds, mib, cores float64
	for _, k := range keys {
		samples := runs[k][0].Samples
		if len(samples) < 3 {
			continue
		}
		r, c := series{name: k.Server}, series{name: k.Server}
		// CPU time has a grain of 10 ms, so it is averaged over at least a second.
		from := 0
		for i, s := range samples {
			r.points = append(r.points, point{s.Seconds, float64(s.RSS) / (1 << 20)})
			mib, seconds = math.Max(mib, float64(s.RSS)/(1<<20)), math.Max(seconds, s.Seconds)
			if d := s.Seconds - samples[from].Seconds; d >= 1 {
				used := (s.CPUSeconds - samples[from].CPUSeconds) / d
				c.points = append(c.points, point{s.Seconds, used})
				cores = math.Max(cores, used)
				from = i
			}
		}
		rss, cpu = append(rss, r), append(cpu, c)
	}
	if len(rss) == 0 {
		return nil
	}
	return []chart{
		{"Resident memory of the server", "Over the first repetition: clients connect, then changes come.", template.HTML(plot(rss, linear(seconds, "s"), linear(mib, "MiB"), "since the run began", "resident"))},
		{"Processors that the server keeps busy", "Over the first repetition; the machine's other work is not in it.", template.HTML(plot(cpu, linear(seconds, "s"), linear(cores, ""), "since the run began", "processors"))},
	}
}
