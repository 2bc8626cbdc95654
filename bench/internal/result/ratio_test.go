package result

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// beside are repetitions of a relay, an older one, and that once more, on a machine that is
// slower each time.
func beside(relay, again [3]float64) *File {
	f := &File{}
	for i := range 3 {
		for server, ratio := range map[string]float64{"relay": relay[i], "relay=old": 1, "relay=old#2": again[i]} {
			r := &Run{Workload: "fanout", Variant: "v", Server: server, Repetition: i + 1}
			r.Add("cpu_per_delivery", ratio*float64(int(10)<<(3*i)), "µs")
			f.Runs = append(f.Runs, r)
		}
	}
	return f
}

func TestRatiosOfOneFile(t *testing.T) {
	f := beside([3]float64{1.5, 1, 1.25}, [3]float64{1, 0.75, 1.125})
	all, missing := f.Ratios("relay=old", nil)
	got := make(map[string]Spread)
	for _, r := range all {
		got[r.Server+" "+r.Figure] = r.Spread
	}
	want := map[string]Spread{
		"relay cpu_per_delivery":       {1, 1.25, 1.5, "", 3}, // the ratio of the medians is 1
		"relay=old#2 cpu_per_delivery": {0.75, 1, 1.125, "", 3},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || len(missing) != 0 {
		t.Errorf("%v, missing %v, want %v", got, missing, want)
	}
	// What only one of two has is told; what neither has is not.
	f.Runs = append(f.Runs, &Run{Workload: "memory", Variant: "v", Server: "relay", Repetition: 1, Figures: []Figure{{"rss_per_client", 1, ""}}})
	if _, missing := f.Ratios("relay=old", nil); strings.Join(missing, "; ") != "memory, v, relay: rss_per_client" {
		t.Errorf("missing %q", missing)
	}
	f.Runs = append(f.Runs, &Run{Workload: "memory", Variant: "v", Server: "relay=old", Repetition: 2, Figures: []Figure{{"rss_per_client", 1, ""}}})
	if _, missing := f.Ratios("relay=old", nil); strings.Join(missing, "; ") != "memory, v, relay: rss_per_client" {
		t.Errorf("another repetition is taken for the same: missing %q", missing)
	}
	if all, missing := f.Ratios("relay=old", []string{"rss_peak"}); len(all)+len(missing) != 0 {
		t.Errorf("a figure that nobody has: %v, %v", all, missing)
	}
}

func TestWorse(t *testing.T) {
	for _, test := range []struct {
		relay, again [3]float64
		worse        bool
	}{
		{[3]float64{1.04, 1, 2}, [3]float64{1, 1, 1}, false},          // the median is within the limit
		{[3]float64{1.06, 1, 2}, [3]float64{1, 1, 1.04}, true},        // and here it is not
		{[3]float64{1.06, 1, 2}, [3]float64{1, 1, 1.07}, false},       // the same, but so does the old one itself
		{[3]float64{1.06, 1, 2}, [3]float64{1, 1, 0.9}, false},        // or would, had they changed places
		{[3]float64{1.08, 1.08, 1.08}, [3]float64{1, 1, 1.07}, true},  // more than that
		{[3]float64{0.5, 0.5, 0.5}, [3]float64{1.5, 1.5, 1.5}, false}, // the old one over itself is not judged
	} {
		all, _ := beside(test.relay, test.again).Ratios("relay=old", nil)
		worse := Worse(all, "relay=old", 1.05)
		if (len(worse) > 0) != test.worse {
			t.Errorf("%+v: %q", test, worse)
		}
		for _, text := range worse {
			if !strings.HasPrefix(text, "fanout, v, relay: cpu_per_delivery is 1.0") || !strings.Contains(text, "× relay=old, relay=old#2 1.000 (1.000–1.0") {
				t.Errorf("it says %q", text)
			}
		}
	}
	// Another relay's noise is not this one's.
	all, _ := beside([3]float64{1.2, 1.2, 1.2}, [3]float64{1, 1, 3}).Ratios("relay=old", nil)
	for i := range all {
		all[i].Server = strings.Replace(all[i].Server, "old#", "older#", 1)
	}
	if worse := Worse(all, "relay=old", 1.05); len(worse) != 1 || !strings.HasPrefix(worse[0], "fanout, v, relay: ") {
		t.Errorf("worse %q", worse)
	}
}

func TestRatiosAsATable(t *testing.T) {
	f := beside([3]float64{1.5, 1, 1.25}, [3]float64{1, 0.75, 1.125})
	f.Runs = append(f.Runs, &Run{Workload: "herd", Variant: "v", Server: "relay=old", Repetition: 1, Figures: []Figure{{"all_synced", 2, "s"}, {"sync_p50", 2, "ms"}}},
		&Run{Workload: "herd", Variant: "v", Server: "relay", Repetition: 1, Figures: []Figure{{"sync_p50", 3, "ms"}}},
		&Run{Workload: "herd", Variant: "v", Server: "relay=old#2", Repetition: 1, Figures: []Figure{{"all_synced", 3, "s"}}})
	all, _ := f.Ratios("relay=old", nil)
	var relay, again []Ratio // f.Runs are in no order
	for _, r := range all {
		if r.Server == "relay" {
			relay = append(relay, r)
		} else {
			again = append(again, r)
		}
	}
	var b bytes.Buffer
	if err := WriteRatios(&b, append(relay, again...), "relay=old"); err != nil {
		t.Fatal(err)
	}
	want := `| workload | ÷ relay=old | relay | relay=old#2 |
|---|---|---|---|
| fanout, v | cpu_per_delivery | 1.250 (1.000–1.500) | 1.000 (0.750–1.125) |
| herd, v | sync_p50 | 1.500 | – |
| herd, v | all_synced | – | 1.500 |
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}
