//go:build linux

package load

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/xds-relay/xds-relay/bench/internal/broadcast"
	"github.com/xds-relay/xds-relay/bench/internal/result"
)

// target is a broadcaster in this process.
func target(t *testing.T) Target {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := broadcast.New(grpc.WaitForHandlers(true))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // until it is stopped
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return Target{Name: "test", Address: l.Addr().String(), Pid: os.Getpid(), Source: s}
}

// tiny is a workload in a second.
func tiny(name string) (*Workload, Options) {
	w := Find(name)
	o := w.Defaults
	o.Clients, o.ConnectRate, o.Settle, o.Warmup = 10, 0, 0, 50*time.Millisecond
	if o.Rate > 0 {
		o.Rate, o.Duration = 100, 300*time.Millisecond
	}
	o.SotW, o.Names, o.Churn = min(o.SotW, 5), min(o.Names, 8), min(o.Churn, 20)
	o.World.Clusters, o.World.Assignments = min(o.World.Clusters, 20), min(o.World.Assignments, 40)
	return w, o
}

// TestWorkloads plays each of them against a server that is known to be right.
func TestWorkloads(t *testing.T) {
	for _, w := range Workloads {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			w, o := tiny(w.Name)
			r, err := Run(t.Context(), w, o, target(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.Figures {
				if unit, ok := w.Figures()[f.Name]; !ok || unit != f.Unit {
					t.Errorf("%s in %q is not in Figures, which an assertion is checked against before the run", f.Name, f.Unit)
				}
			}
			get := func(name string) float64 {
				v, ok := r.Get(name)
				if !ok {
					t.Errorf("there is no %s in %v", name, r.Figures)
				}
				return v
			}
			switch w.Name {
			case "herd", "herd-named", "reconnect":
				resources := map[string]int{"herd": o.World.Clusters, "herd-named": o.Names}[w.Name]
				if n := get("resources_per_client"); n != float64(resources) {
					t.Errorf("%v resources for each client, want %v", n, resources)
				}
				if get("rss_peak") == 0 {
					t.Error("nobody has used any memory")
				}
			case "memory":
				get("rss_per_client")
			case "names":
				if n := get("names_per_client"); n != float64(o.Names) {
					t.Errorf("%v names, want %d", n, o.Names)
				}
			default:
				if n := get("changes"); n != 30 {
					t.Errorf("%v changes, want 30", n)
				}
				// Of named, each change has the audience that chance gave it.
				if n := get("deliveries"); w.Name != "named" && n != float64(30*o.Clients) {
					t.Errorf("%v deliveries, want 30 to each of %d clients", n, o.Clients)
				}
				if get("unsettled_changes") != 0 || get("repeated_deliveries") != 0 {
					t.Errorf("changes are missing, or came twice: %v", r.Figures)
				}
				if h, err := r.Histogram("propagation"); err != nil || float64(h.TotalCount()) != get("deliveries") {
					t.Errorf("the histogram holds %v (%v), want every delivery", h, err)
				}
			}
		})
	}
}

// TestCheck: what cannot be run is refused, and it is said why.
func TestCheck(t *testing.T) {
	source := Target{Source: broadcast.New()}
	for _, test := range []struct {
		workload string
		change   func(*Options)
		target   Target
		want     string // "": nothing is wrong
	}{
		{"fanout", func(*Options) {}, source, ""},
		{"fanout", func(*Options) {}, Target{}, "fanout needs changes"},
		{"herd", func(*Options) {}, Target{}, ""},
		{"memory", func(*Options) {}, Target{}, ""},
		{"herd", func(o *Options) { o.Clients = 0 }, source, "0 clients"},
		{"herd", func(o *Options) { o.World.Clusters = 0 }, source, "0 clusters"},
		{"fanout", func(o *Options) { o.Rate = 0 }, source, "0 changes a second"},
		{"named", func(o *Options) { o.World.Assignments = 50 }, source, "100 of 50 assignments"},
		{"named", func(o *Options) { o.World.Assignments = 100 }, source, ""},
		{"named", func(o *Options) { o.Names = 0 }, source, "0 names"},
		{"mixed", func(o *Options) { o.Clients = 500 }, source, "1000 of 500 clients speak SotW"},
		{"mixed", func(o *Options) { o.Clients = 1000 }, source, ""},
	} {
		w := Find(test.workload)
		o := w.Defaults
		test.change(&o)
		err := w.check(o, test.target)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s, %s: %v, want %q", test.workload, w.Variant(o), err, test.want)
		}
	}
	if _, err := Run(t.Context(), Find("fanout"), Find("fanout").Defaults, Target{}, nil); err == nil || !strings.Contains(err.Error(), "needs changes") {
		t.Errorf("a run without changes: %v", err)
	}
}

// deaf is a source that never tells anybody.
type deaf struct{ *broadcast.Server }

func (deaf) Step(int) error { return nil }

// broken is a source that cannot go on.
type broken struct{ *broadcast.Server }

func (broken) Step(int) error { return errors.New("out of order") }

func TestARunThatFailsSaysWhy(t *testing.T) {
	w, o := tiny("fanout")
	at := target(t)
	at.Source = broken{at.Source.(*broadcast.Server)}
	if _, err := Run(t.Context(), w, o, at, nil); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("a source that fails: %v", err)
	}
	at = target(t)
	at.Source, at.Origin = broken{at.Source.(*broadcast.Server)}, "127.0.0.1:2"
	if _, err := Run(t.Context(), w, o, at, nil); err == nil || strings.Contains(err.Error(), "nobody") {
		t.Errorf("an origin that the server has connected to: %v", err)
	}
	at = target(t)
	at.Address, at.Origin = "127.0.0.1:1", "127.0.0.1:2"
	if _, err := Run(t.Context(), w, o, at, nil); err == nil || !strings.Contains(err.Error(), "refused") || !strings.Contains(err.Error(), "nobody has connected to the origin at 127.0.0.1:2") {
		t.Errorf("a server that is not there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, w, o, target(t), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that is ended: %v", err)
	}
}

// TestAServerThatHangsUp: it is said which, and when.
func TestAServerThatHangsUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	})
	defer work.Wait()
	defer l.Close()
	w, o := tiny("herd")
	_, err = Run(t.Context(), w, o, Target{Name: "test", Address: l.Addr().String()}, nil)
	if err == nil || !strings.HasPrefix(err.Error(), "herd against test, first client: "+l.Addr().String()+": ") {
		t.Errorf("it fails with %v", err)
	}
	f := newFleet(Target{Address: "a:1"}, 1, newRecorder())
	f.lost(io.EOF)
	if got, want := f.err().Error(), "a:1: the server has closed a connection: EOF"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestConnectStopsAtAFailure: a dialer that has failed is not given another client.
func TestConnectStopsAtAFailure(t *testing.T) {
	f := newFleet(Target{Address: "127.0.0.1:1"}, 1, newRecorder())
	asked := 0
	of := func(int) *profile {
		asked++
		return &profile{delta: true}
	}
	const dialers = 64
	err := f.connect(t.Context(), of, 0, 10000, func(int) time.Time { return time.Time{} })
	if err == nil || asked > dialers+1 {
		t.Errorf("%d of 10000 clients were dialled: %v", asked, err)
	}
}

// TestLatencyCountsFromTheIntendedTime: a schedule that falls behind makes changes late.
func TestLatencyCountsFromTheIntendedTime(t *testing.T) {
	r, begin := newRecorder(), time.Now()
	s := r.begin(11, 3, begin, 10*time.Millisecond, func(int) int { return 2 })
	if due := s.due(13).Sub(begin); due != 20*time.Millisecond {
		t.Fatalf("step 13 is due after %v", due)
	}
	r.delivered(10, begin) // before the measurement
	// Nothing was sent for a second, and then all at once.
	late := begin.Add(time.Second)
	for step := 11; step <= 13; step++ {
		r.delivered(step, late)
	}
	select {
	case <-s.done:
		t.Fatal("done, and half of the clients have heard of nothing")
	default:
	}
	later := late.Add(500 * time.Millisecond)
	for step := 11; step <= 13; step++ {
		r.delivered(step, later)
	}
	<-s.done
	r.delivered(12, later) // once more
	near := func(what string, µs int64, want time.Duration) {
		t.Helper()
		if d := time.Duration(µs)*time.Microsecond - want; d < -want/500 || d > want/500 {
			t.Errorf("%s is %d µs, want %v", what, µs, want)
		}
	}
	all, last := r.propagation(), r.lastClient()
	if all.TotalCount() != 6 || last.TotalCount() != 3 || s.repeated.Load() != 1 || s.early.Load() != 1 {
		t.Errorf("%d deliveries, %d last clients, %d repeated, %d early; want 6, 3, 1, 1", all.TotalCount(), last.TotalCount(), s.repeated.Load(), s.early.Load())
	}
	near("the least", all.Min(), 980*time.Millisecond)
	near("the greatest", all.Max(), 1500*time.Millisecond)
	near("the least of the last clients", last.Min(), 1480*time.Millisecond)
}

// TestWhatNeverArrivesIsLate: left out, it would make a server look quick.
func TestWhatNeverArrivesIsLate(t *testing.T) {
	r, begin := newRecorder(), time.Now()
	s := r.begin(1, 2, begin, time.Second, func(int) int { return 10 })
	for range 7 {
		r.delivered(1, begin.Add(time.Millisecond))
	}
	for range 10 {
		r.delivered(2, begin.Add(time.Second+time.Millisecond))
	}
	const waited = 20 * time.Second
	if n := r.missing(s, begin.Add(waited)); n != 3 {
		t.Errorf("%d deliveries are missing, want 3", n)
	}
	all, last := r.propagation(), r.lastClient()
	if all.TotalCount() != 20 || last.TotalCount() != 2 {
		t.Errorf("%d deliveries and %d last clients, want 20 and 2", all.TotalCount(), last.TotalCount())
	}
	if p50, p99 := all.ValueAtPercentile(50), all.ValueAtPercentile(99); p50 > 1100 || p99 < waited.Microseconds() {
		t.Errorf("p50 is %d µs and p99 %d µs, want 1 ms and at least %v", p50, p99, waited)
	}
	if a, b := last.Min(), last.ValueAtPercentile(100); a > 1100 || b < waited.Microseconds() {
		t.Errorf("the last clients took %d and %d µs, want 1 ms and at least %v", a, b, waited)
	}
}

func TestRecorderIsSafe(t *testing.T) {
	r := newRecorder()
	s := r.begin(1, 100, time.Now(), time.Millisecond, func(int) int { return 8 })
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for n := 1; n <= 100; n++ {
				r.delivered(n, time.Now())
			}
		})
	}
	work.Wait()
	<-s.done
	if n := r.propagation().TotalCount(); n != 800 {
		t.Errorf("%d deliveries, want 800", n)
	}
}

// TestFullStateIsCountedOnce: a SotW response repeats what was known.
func TestFullStateIsCountedOnce(t *testing.T) {
	w, o := tiny("sotw")
	o.Clients, o.SotW = 3, 3
	r, err := Run(t.Context(), w, o, target(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := r.Get("repeated_deliveries"); n != 0 {
		t.Errorf("%v deliveries were counted twice", n)
	}
}

func TestSilenceIsNotTakenForSuccess(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for what never comes")
	}
	t.Parallel()
	w, o := tiny("fanout")
	o.Warmup = 0
	at := target(t)
	at.Source = deaf{at.Source.(*broadcast.Server)}
	r, err := Run(t.Context(), w, o, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := r.Get("unsettled_changes"); n != 30 {
		t.Errorf("%v of 30 changes reached nobody, and only so many are told", n)
	}
	if _, ok := r.Get("cpu_per_delivery"); ok {
		t.Error("there is a cost per delivery, and there was none")
	}
}

// TestSharedConnections: many streams on few connections.
func TestSharedConnections(t *testing.T) {
	w, o := tiny("fanout")
	o.Clients, o.PerConn = 50, 25
	r, err := Run(t.Context(), w, o, target(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := r.Get("deliveries"); n != 30*50 {
		t.Errorf("%v deliveries, want 1500", n)
	}
}

func TestSlopes(t *testing.T) {
	r := &result.Run{}
	for i := range 90 {
		s := result.Sample{Seconds: float64(i), RSS: 1000, Goroutines: 10, FDs: 5}
		if i < 30 {
			s.RSS = int64(i) // growing into its size says nothing
		} else {
			s.Goroutines += i - 30
		}
		r.Samples = append(r.Samples, s)
	}
	slopes(r)
	if v, _ := r.Get("rss_slope"); v != 0 {
		t.Errorf("RSS that does not grow grows by %v %%/h", v)
	}
	// One a second, over a mean of 39.5.
	if v, _ := r.Get("goroutines_slope"); v < 9113 || v > 9115 {
		t.Errorf("goroutines grow by %v %%/h, want 100*3600/39.5", v)
	}
	if _, ok := r.Get("heap_slope"); ok {
		t.Error("a heap that was never seen has a slope")
	}
}
