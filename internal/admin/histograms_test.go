package admin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/xds-relay/xds-relay/cache"
)

// scrapeAs is a scrape by somebody who asks for a format.
func scrapeAs(t *testing.T, m *Metrics, accept string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequest("GET", "/metrics", nil)
	req.Host = "localhost"
	req.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	NewHandler(newDescribed(), m, HandlerOptions{Host: "localhost", Log: slog.New(slog.DiscardHandler)}).ServeHTTP(w, req)
	return w
}

// inProtobuf are the metrics of a scrape in protobuf, as Prometheus asks for it with native histograms on.
func inProtobuf(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	w := scrapeAs(t, m, "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,text/plain;version=0.0.4;q=0.3")
	if format := w.Header().Get("Content-Type"); !strings.HasPrefix(format, "application/vnd.google.protobuf;") {
		t.Fatalf("the answer is in %s", format)
	}
	families := make(map[string]*dto.MetricFamily)
	for r := bufio.NewReader(w.Body); ; {
		f := new(dto.MetricFamily)
		if err := protodelim.UnmarshalFrom(r, f); errors.Is(err, io.EOF) {
			return families
		} else if err != nil {
			t.Fatal(err)
		}
		families[f.GetName()] = f
	}
}

// TestNativeHistograms: whoever asks for protobuf gets both forms of each histogram, if they are configured, and
// whoever asks for text the same lines in any case.
func TestNativeHistograms(t *testing.T) {
	observe := func(m *Metrics) {
		m.ClientAck(cache.Cluster, 3*time.Millisecond)
		m.ClientPropagation(cache.Cluster, 2*time.Millisecond, "")
		m.Converged(cache.Cluster, 30*time.Millisecond)
		m.Converged(cache.Cluster, 5*time.Minute)
		m.ConvergenceSkipped(2)
	}
	names := []string{prefix + "ack_seconds", prefix + "propagation_seconds", prefix + "convergence_seconds"}
	text := make(map[bool][]string)
	for _, native := range []bool{true, false} {
		var options []MetricsOption
		if !native {
			options = append(options, WithoutNativeHistograms())
		}
		m := NewMetrics(Build{}, options...)
		observe(m)
		families := inProtobuf(t, m)
		for _, name := range names {
			var h *dto.Histogram
			for _, metric := range families[name].GetMetric() {
				if metric.GetLabel()[0].GetValue() == "CDS" {
					h = metric.GetHistogram()
				}
			}
			if len(h.GetBucket()) < 10 || h.GetSampleCount() == 0 {
				t.Errorf("%s has %d classic buckets for %d samples", name, len(h.GetBucket()), h.GetSampleCount())
			}
			if has := len(h.GetPositiveSpan()) > 0 && h.GetSchema() == 3; has != native {
				t.Errorf("%s has a native form: %v, want %v", name, has, native)
			}
		}
		for line := range strings.Lines(scrapeAs(t, m, "text/plain;version=0.0.4").Body.String()) {
			if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(line, name) }) {
				text[native] = append(text[native], line)
			}
		}
	}
	if !slices.Equal(text[true], text[false]) {
		t.Error("a scrape in text depends on the native form")
	}
	for _, want := range []string{`convergence_seconds_bucket{type="CDS",le="0.05"} 1`, `convergence_seconds_bucket{type="CDS",le="120"} 1`, `convergence_seconds_bucket{type="CDS",le="+Inf"} 2`, `convergence_seconds_count{type="EDS"} 0`} {
		if !slices.Contains(text[true], prefix+want+"\n") {
			t.Errorf("%s is not there", want)
		}
	}
	m := NewMetrics(Build{})
	observe(m)
	if body := scrape(t, m); !strings.Contains(body, "\n"+prefix+"convergence_skipped_total 2\n") {
		t.Error("it is not counted what was skipped")
	}
}

// TestWhoIsLate: laggards and states are gauges of the state at the scrape.
func TestWhoIsLate(t *testing.T) {
	m := NewMetrics(Build{})
	m.Attach(newDescribed())
	body := scrape(t, m)
	for _, want := range []string{
		`laggards{over="5s"} 3`, `laggards{over="30s"} 2`, `laggards{over="5m"} 1`,
		`resources_by_state{state="acked",type="CDS"} 3`, `resources_by_state{state="does_not_exist",type="SDS"} 1`,
		`resources_by_state{state="timeout_but_cached",type="SDS"} 0`, `resources_by_state{state="requested",type="EDS"} 0`,
	} {
		if !strings.Contains(body, "\n"+prefix+want+"\n") {
			t.Errorf("%s%s is not there", prefix, want)
		}
	}
}

// BenchmarkScrape is a scrape of what does not depend on the number of clients and names.
func BenchmarkScrape(b *testing.B) {
	m := NewMetrics(Build{})
	m.Attach(newDescribed())
	for _, t := range append(cache.WellKnown(), "other") {
		for i := range 1000 {
			m.clients.of(t).ack.Observe(float64(i) / 100)
			m.clients.of(t).propagation.Observe(float64(i) / 1000)
		}
	}
	h := NewProbes(newDescribed(), m)
	for name, accept := range map[string]string{"text": "text/plain", "protobuf": "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				req := httptest.NewRequest("GET", "/metrics", nil)
				req.Header.Set("Accept", accept)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, req)
				if size = w.Body.Len(); w.Code != 200 || size == 0 {
					b.Fatal(fmt.Sprint(w.Code, size))
				}
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
