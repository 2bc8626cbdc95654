package report

import (
	"bytes"
	"encoding/xml"
	"html"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/bench/internal/result"
)

func file(t *testing.T) *result.File {
	t.Helper()
	f := &result.File{Machine: "m <b>", Date: "d", Command: "c", Versions: map[string]string{"go": "1"}, Notes: []string{"one failed"}}
	for rep := 1; rep <= 2; rep++ {
		for i, server := range []string{"floor", "relay", "of <mine>"} {
			r := &result.Run{Workload: "fanout", Variant: "1000 clients, 1000 clusters", Server: server, Repetition: rep}
			r.Add("cpu_per_delivery", float64(10*(i+1)), "µs")
			h := result.NewHistogram()
			for v := int64(1); v < 2000; v++ {
				if err := h.RecordValue(v * int64(10*(i+1))); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Distribution("propagation", h); err != nil {
				t.Fatal(err)
			}
			for s := range 10 {
				r.Samples = append(r.Samples, result.Sample{Seconds: float64(s), CPUSeconds: float64(s) / 2, RSS: int64(s) << 20})
			}
			f.Runs = append(f.Runs, r)
		}
	}
	return f
}

func TestPageStandsAlone(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, file(t)); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, bad := range []string{"http:", "https:", "<script", "<link", "src=", "NaN", "Inf", "<mine>", "m <b>"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	for _, want := range []string{"of &lt;mine&gt;", "one failed", "W1 CPU per delivery", ">missed<", "From a change to a client", "Resident memory of the server", "go 1"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	svgs := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1)
	if len(svgs) != 4 {
		t.Errorf("%d drawings, want bars, percentiles, memory and processors", len(svgs))
	}
	for _, s := range svgs {
		d := xml.NewDecoder(strings.NewReader(s))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("a drawing is not well formed: %v\n%s", err, s)
			}
		}
	}
}

func TestEmptyRunsMakeAPage(t *testing.T) {
	f := &result.File{Runs: []*result.Run{{Workload: "fanout", Server: "x"}, {Workload: "new", Server: "y"}}}
	if err := Write(io.Discard, f); err != nil {
		t.Error(err)
	}
}

func TestScales(t *testing.T) {
	for _, hi := range []float64{0, 1e-3, 0.9, 1, 7, 99, 100, 1001, 123456789} {
		s := linear(hi, "x")
		if s.hi < hi || len(s.ticks) < 2 || len(s.ticks) > 8 || s.ticks[len(s.ticks)-1].at > s.hi*1.001 {
			t.Errorf("up to %v: %+v", hi, s)
		}
	}
	for _, r := range [][2]float64{{0, 0}, {1, 1}, {0.2, 900}, {math.Inf(1), 0}} {
		s := logarithmic(r[0], r[1], "ms")
		if math.IsInf(r[0], 1) {
			continue // nobody draws without values
		}
		if s.hi < r[1] || s.lo > math.Max(r[0], 1e-3) || len(s.ticks) < 2 {
			t.Errorf("from %v to %v: %+v", r[0], r[1], s)
		}
	}
	if x := logarithmic(1, 1000, "").map1(10); math.Abs(x-1.0/3) > 1e-9 {
		t.Errorf("10 of 1 to 1000 lies at %v", x)
	}
}

// TestLabelsDoNotMeet: labels of lines that end at one place are all readable.
func TestLabelsDoNotMeet(t *testing.T) {
	var taken []float64
	for range 8 {
		at := free(taken, 100)
		for _, other := range taken {
			if math.Abs(at-other) < lineHeight {
				t.Errorf("labels at %v and %v", at, other)
			}
		}
		taken = append(taken, at)
	}
}

// TestLabelsAreWhole: no label ends outside its drawing, also of a server that is called after a path.
func TestLabelsAreWhole(t *testing.T) {
	f := file(t)
	for _, r := range f.Runs {
		if r.Server == "relay" {
			r.Server = "relay=/usr/local/bin/xds-relay-before"
		}
	}
	var b bytes.Buffer
	if err := Write(&b, f); err != nil {
		t.Fatal(err)
	}
	drawing := regexp.MustCompile(`(?s)<svg viewBox="0 0 (\d+) .*?</svg>`)
	label := regexp.MustCompile(`<text class="(?:tick|end|value)" x="([\d.]+)" y="[\d.]+"([^>]*)>([^<]*)<`)
	number := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, d := range drawing.FindAllStringSubmatch(b.String(), -1) {
		width := number(d[1])
		for _, l := range label.FindAllStringSubmatch(d[0], -1) {
			from, long := number(l[1]), 7*float64(len(html.UnescapeString(l[3])))
			switch {
			case strings.Contains(l[2], `"end"`):
				from -= long
			case strings.Contains(l[2], `"middle"`):
				from -= long / 2
			}
			if from < 0 || from+long > width {
				t.Errorf("%q goes from %.0f to %.0f, and the drawing is %.0f wide", l[3], from, from+long, width)
			}
		}
	}
}
