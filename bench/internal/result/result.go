// Package result owns what a run has measured: its form on disk, and what can be
// computed from several. It never measures anything. A figure is a name, a number
// and a unit; what the names mean is said where they are measured.
package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// File is what a results file holds.
type File struct {
	Machine  string            `json:"machine"`
	Date     string            `json:"date"`
	Command  string            `json:"command"`
	Versions map[string]string `json:"versions"`
	Labels   map[string]string `json:"labels,omitempty"`
	Notes    []string          `json:"notes,omitempty"`
	Runs     []*Run            `json:"runs"`
}

// Run is one workload against one server.
type Run struct {
	Workload string `json:"workload"`
	Server   string `json:"server"`
	// Variant tells runs of a workload apart, such as by the number of clients.
	Variant    string  `json:"variant"`
	Repetition int     `json:"repetition"`
	Options    any     `json:"options"`
	Load       string  `json:"load_average"` // of the machine, at the end
	Seconds    float64 `json:"seconds"`

	Figures []Figure `json:"figures"`
	// Histograms are of durations in µs, HDR, encoded as V2 compressed.
	Histograms map[string]string `json:"histograms,omitempty"`
	Samples    []Sample          `json:"samples,omitempty"`
}

// Figure is one number.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
}

// Sample is how the server's process was at a moment of the run.
type Sample struct {
	Seconds    float64 `json:"t"` // since the run began
	CPUSeconds float64 `json:"cpu"`
	RSS        int64   `json:"rss"`
	FDs        int     `json:"fds"`
	Heap       int64   `json:"heap,omitempty"`
	Goroutines int     `json:"goroutines,omitempty"`
}

// Add adds a figure.
func (r *Run) Add(name string, value float64, unit string) {
	r.Figures = append(r.Figures, Figure{name, value, unit})
}

// Get is the value of a figure.
func (r *Run) Get(name string) (v float64, ok bool) {
	f, ok := r.figure(name)
	return f.Value, ok
}

func (r *Run) figure(name string) (Figure, bool) {
	for _, f := range r.Figures {
		if f.Name == name {
			return f, true
		}
	}
	return Figure{}, false
}

// The bounds of durations, in µs, and how exactly they are kept.
const (
	Shortest = 1
	Longest  = int64(10 * time.Minute / time.Microsecond)
	digits   = 3
)

// NewHistogram is a histogram of durations in µs.
func NewHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(Shortest, Longest, digits) }

// quantiles are those that are shown of a distribution.
var quantiles = []struct {
	name string
	at   float64
}{{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p999", 99.9}, {"max", 100}}

// Distribution adds a histogram of µs, and its quantiles in ms.
func (r *Run) Distribution(name string, h *hdrhistogram.Histogram) error {
	if h.TotalCount() == 0 {
		return nil
	}
	for _, q := range quantiles {
		r.Add(name+"_"+q.name, float64(h.ValueAtPercentile(q.at))/1e3, "ms")
	}
	enc, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return fmt.Errorf("result: %s: %w", name, err)
	}
	if r.Histograms == nil {
		r.Histograms = make(map[string]string)
	}
	r.Histograms[name] = string(enc) // base64
	return nil
}

// Histogram is a distribution that was added; nil if there is none.
func (r *Run) Histogram(name string) (*hdrhistogram.Histogram, error) {
	text, ok := r.Histograms[name]
	if !ok {
		return nil, nil
	}
	h, err := hdrhistogram.Decode([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("result: histogram %s: %w", name, err)
	}
	return h, nil
}

// Write writes a file: one run a line, so that files stay small, and differ where runs do.
func (f *File) Write(name string) error {
	lines := make([]string, 0, len(f.Runs))
	for _, r := range f.Runs {
		line, err := marshal(r, "")
		if err != nil {
			return err
		}
		lines = append(lines, "  "+line)
	}
	head := *f
	head.Runs = []*Run{}
	text, err := marshal(head, " ")
	if err != nil {
		return err
	}
	const empty = `"runs": []`
	i := strings.LastIndex(text, empty)
	text = text[:i] + "\"runs\": [\n" + strings.Join(lines, ",\n") + "\n ]" + text[i+len(empty):] + "\n"
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

func marshal(v any, indent string) (string, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return "", fmt.Errorf("result: %w", err)
	}
	return strings.TrimSpace(text.String()), nil
}

// Read reads a file.
func Read(name string) (*File, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	var f File
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("result: %s is no results file: %w", name, err)
	}
	if len(f.Runs) == 0 {
		return nil, fmt.Errorf("result: %s has no runs", name)
	}
	return &f, nil
}

// Spread is a figure over the repetitions.
type Spread struct {
	Min, Median, Max float64
	Unit             string
	N                int
}

// Over is the spread of a figure over the runs that have it.
func Over(runs []*Run, name string) (s Spread, ok bool) {
	var values []float64
	for _, r := range runs {
		if f, ok := r.figure(name); ok {
			values, s.Unit = append(values, f.Value), f.Unit
		}
	}
	if len(values) == 0 {
		return s, false
	}
	slices.Sort(values)
	s.N, s.Min, s.Max = len(values), values[0], values[len(values)-1]
	s.Median = (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	return s, true
}

// Again stands between the name of a server and a number where the same server runs once
// more beside itself.
const Again = "#"

// Key tells runs apart that are not repetitions of each other.
type Key struct{ Workload, Variant, Server string }

// Key is a run's.
func (r *Run) Key() Key { return Key{r.Workload, r.Variant, r.Server} }

// Group is the runs of a file by Key, and the keys in their order.
func (f *File) Group() (keys []Key, runs map[Key][]*Run) {
	runs = make(map[Key][]*Run)
	for _, r := range f.Runs {
		if runs[r.Key()] == nil {
			keys = append(keys, r.Key())
		}
		runs[r.Key()] = append(runs[r.Key()], r)
	}
	return keys, runs
}

// Append adds the runs of another file, as further repetitions: those of one file were made
// at one time, and are related to each other only.
func (f *File) Append(other *File) {
	last := 0
	for _, r := range f.Runs {
		last = max(last, r.Repetition)
	}
	for _, r := range other.Runs {
		later := *r
		later.Repetition += last
		f.Runs = append(f.Runs, &later)
	}
	f.Notes = append(f.Notes, other.Notes...)
	f.Command += "; " + other.Command
}

// Round rounds to milliseconds, as seconds.
func Round(d time.Duration) float64 { return float64(d.Milliseconds()) / 1e3 }
