package envoy

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// initialized reads how long an Envoy has taken until it was ready, by its own clock: from the start of its server until
// its workers accept connections.
var initialized = regexp.MustCompile(`server\.initialization_time_ms: P0\([^,]*,([0-9.]+)\)`)

// TestReadyTimes measures how long real Envoys take until they are ready, directly and through relays, with the control
// plane some way off. It judges nothing: READY_TIMES says how many Envoys are started for each figure (make bench-ready).
func TestReadyTimes(t *testing.T) {
	rounds := measured(t)
	own := "groups.key=[id]" // each Envoy is a group of its own, and finds nothing there
	for _, away := range []time.Duration{0, 10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond} {
		for _, k := range []struct {
			what  string
			begin func(t *testing.T) (start func(i int) time.Duration)
		}{
			{"direct", func(t *testing.T) func(int) time.Duration {
				s := far(t, 0, away)
				return func(i int) time.Duration { return s.readyAfter(t, i) }
			}},
			{"a relay that has never met the control plane", func(t *testing.T) func(int) time.Duration {
				return func(i int) time.Duration { return far(t, 1, away).readyAfter(t, i) }
			}},
			{"a relay that knows the control plane", func(t *testing.T) func(int) time.Duration {
				s := far(t, 1, away, own)
				s.readyAfter(t, -1)
				return func(i int) time.Duration { return s.readyAfter(t, i) }
			}},
			{"a warm relay", func(t *testing.T) func(int) time.Duration {
				s := far(t, 1, away)
				s.readyAfter(t, -1)
				return func(i int) time.Duration { return s.readyAfter(t, i) }
			}},
		} {
			t.Run(fmt.Sprintf("%v away, %s", away, k.what), func(t *testing.T) {
				medianOf(t, rounds, k.begin(t))
			})
		}
	}
}

// TestGlobReadyTimes is TestReadyTimes for Envoys that take listeners and clusters from globs (NAME-11).
func TestGlobReadyTimes(t *testing.T) {
	rounds := measured(t)
	for _, away := range []time.Duration{0, 50 * time.Millisecond} {
		begin := func(t *testing.T, relays int, sets ...string) *scene {
			w := way{relays: relays}
			has := world{}
			w.makes().putService(has, "a", realenvoy.Backend(t, "a"))
			s := play(t, w, has, sets...)
			s.links[0].Lag(away/2, 0)
			return s
		}
		ready := func(t *testing.T, s *scene, i int) time.Duration {
			return tookToBeReady(t, globEnvoy(t, fmt.Sprintf("envoy-%d", i), s.tap.Addr, "web", func(b realenvoy.Bootstrap) { b["stats_flush_interval"] = flushes }))
		}
		for relays := range 3 {
			t.Run(fmt.Sprintf("%v away, relays=%d, nobody was there before", away, relays), func(t *testing.T) {
				medianOf(t, rounds, func(i int) time.Duration { return ready(t, begin(t, relays), i) })
			})
			if relays == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%v away, relays=%d, they know the control plane", away, relays), func(t *testing.T) {
				s := begin(t, relays, "groups.key=[id]") // each Envoy is a group of its own, and finds nothing there
				ready(t, s, -1)
				medianOf(t, rounds, func(i int) time.Duration { return ready(t, s, i) })
			})
			t.Run(fmt.Sprintf("%v away, relays=%d, they have all", away, relays), func(t *testing.T) {
				s := begin(t, relays)
				ready(t, s, -1)
				medianOf(t, rounds, func(i int) time.Duration { return ready(t, s, i) })
			})
		}
	}
}

// measured is how many measurements each figure is of.
func measured(t *testing.T) int {
	t.Helper()
	rounds, err := strconv.Atoi(os.Getenv("READY_TIMES"))
	if err != nil {
		t.Skip("it takes minutes; READY_TIMES=20 runs it")
	}
	return rounds
}

func medianOf(t *testing.T, rounds int, measure func(i int) time.Duration) {
	t.Helper()
	var all []time.Duration
	for i := range rounds {
		all = append(all, measure(i))
	}
	slices.Sort(all)
	t.Logf("median %v (%v to %v)", all[rounds/2], all[0], all[rounds-1])
}

// TestOnDemandTimes measures how long a request takes that has an Envoy ask for a virtual host, or a cluster, directly
// and through a relay. It judges nothing.
func TestOnDemandTimes(t *testing.T) {
	rounds := measured(t)
	for relays := range 2 {
		w := way{relays: relays}
		m := w.makes()
		t.Run(w.String()+", virtual hosts", func(t *testing.T) {
			s, address := hostsOnDemand(t, w, realenvoy.Backend(t, "a"))
			s.plane.Change(func(has world) {
				for i := range rounds {
					putHost(has, fmt.Sprintf("h%d.example", i), "here")
				}
			})
			medianOf(t, rounds, func(i int) time.Duration {
				return requestTook(t, address, "here", host(fmt.Sprintf("h%d.example", i)))
			})
		})
		t.Run(w.String()+", clusters", func(t *testing.T) {
			backend := realenvoy.Backend(t, "a")
			s, address := clustersOnDemand(t, w, backend)
			s.plane.Change(func(has world) {
				for i := range rounds {
					name := fmt.Sprintf("c%d", i)
					has.put(cache.Cluster, name, m.cluster(name))
					has.put(cache.Endpoint, name, endpoints(name, backend))
				}
			})
			medianOf(t, rounds, func(i int) time.Duration {
				return requestTook(t, address, "a", header("x-cluster", fmt.Sprintf("c%d", i)))
			})
		})
	}
}

// requestTook is how long a request takes that is answered so.
func requestTook(t *testing.T, address, want string, change func(*http.Request)) time.Duration {
	t.Helper()
	begin := time.Now()
	if answer, failure := realenvoy.Get(address, change); answer != want {
		t.Fatalf("answered %q %s, want %q", answer, failure, want)
	}
	return time.Since(begin)
}

// far sets a scene whose control plane is so far away, there and back.
func far(t *testing.T, relays int, away time.Duration, sets ...string) *scene {
	w := way{relays: relays}
	s := play(t, w, w.makes().service("a", realenvoy.Backend(t, "a")), sets...)
	s.links[0].Lag(away/2, 0)
	return s
}

// readyAfter starts an Envoy, and returns how long it took. It is gone then.
func (s *scene) readyAfter(t *testing.T, i int) time.Duration {
	b := realenvoy.ADS(realenvoy.Node{ID: fmt.Sprintf("envoy-%d", i), Cluster: "e2e"}, realenvoy.Source{Target: s.tap.Addr})
	b["stats_flush_interval"] = flushes
	return tookToBeReady(t, realenvoy.Start(t, b, realenvoy.Options{Name: "envoy"}))
}

// flushes is how often an Envoy takes stock, before which it does not tell how long it took.
const flushes = "0.1s"

// tookToBeReady is how long an Envoy took. It is gone then.
func tookToBeReady(t *testing.T, e *realenvoy.Envoy) (took time.Duration) {
	defer e.Kill()
	e.WaitReady(patience)
	peer.Eventually(t, patience, func() error {
		text, err := e.Get("/stats?filter=server.initialization_time_ms")
		if err != nil {
			return err
		}
		found := initialized.FindStringSubmatch(text)
		if found == nil {
			return fmt.Errorf("no figure in %q", text)
		}
		ms, err := strconv.ParseFloat(found[1], 64)
		took = time.Duration(ms * float64(time.Millisecond))
		return err
	})
	return took
}
