package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// A name that does not exist is reported missing once the does-not-exist timer is
// over, because go-control-plane never says so; when it is created it is
// delivered, and so on (MISS-2 to MISS-4).
func TestNameThatDoesNotExist(t *testing.T) {
	t.Parallel()
	const timeout = 400 * time.Millisecond
	w := newLinear(t)
	w.Set(cache.Endpoint, "there", endpoints("there", 1, "127.0.0.1:1"))
	cp := startControlPlane(t, w.Mux())
	r := startRelay(t, cp.addr, "timers.dne_timeout="+timeout.String())
	begin := time.Now()
	d := openDelta(t, r.addr, "delta")
	s := openSotw(t, r.addr, "sotw")
	d.Subscribe(cache.Endpoint, "there", "missing")
	s.Watch(cache.Endpoint, "there", "missing")
	eventually(t, patience, func() error {
		return first(d.Missing(cache.Endpoint, "missing"), s.Missing(cache.Endpoint, "missing"))
	})
	if took := time.Since(begin); took < timeout {
		t.Errorf("reported missing after %v, before the timer of %v was over", took, timeout)
	}
	// A newcomer need not wait again.
	late := openDelta(t, r.addr, "late")
	late.Subscribe(cache.Endpoint, "missing")
	if took := eventually(t, patience, func() error { return late.Missing(cache.Endpoint, "missing") }); took >= timeout {
		t.Errorf("a newcomer was told after %v only", took)
	}

	for revision := 1; revision <= 2; revision++ {
		w.Set(cache.Endpoint, "missing", endpoints("missing", revision, "127.0.0.1:1"))
		eventually(t, patience, func() error {
			return first(d.AtLeast(cache.Endpoint, "missing", revision), s.AtLeast(cache.Endpoint, "missing", revision), late.AtLeast(cache.Endpoint, "missing", revision))
		})
		w.Delete(cache.Endpoint, "missing")
		eventually(t, patience, func() error {
			return first(d.Missing(cache.Endpoint, "missing"), s.Missing(cache.Endpoint, "missing"), late.Missing(cache.Endpoint, "missing"),
				d.Has(cache.Endpoint, "there"), s.Has(cache.Endpoint, "there"), late.Has(cache.Endpoint))
		})
	}
	if err := first(d.Sound(), s.Sound(), late.Sound()); err != nil {
		t.Error(err)
	}
}

// An upstream that says that a name does not exist is believed at once, whatever
// the timers; another relay is one that does (MISS-5).
func TestUpstreamSaysMissing(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	cp := startControlPlane(t, w.Mux())
	near := startRelay(t, cp.addr, "timers.dne_timeout=300ms")
	far := startRelay(t, near.addr, "instance=far", "timers.dne_timeout=1h", "timers.dne_timeout_explicit=1h")
	d := openDelta(t, far.addr, "delta")
	d.Subscribe(cache.Endpoint, "missing")
	eventually(t, patience, func() error { return d.Missing(cache.Endpoint, "missing") })
	w.Set(cache.Endpoint, "missing", endpoints("missing", 1, "127.0.0.1:1"))
	eventually(t, patience, func() error { return d.Has(cache.Endpoint, "missing") })
	if err := d.Sound(); err != nil {
		t.Error(err)
	}
}

// Nothing is missing because upstream is down (MISS-7, H-2): neither what is asked
// for while it never was there, nor what it had no time to answer. Clients are told
// that upstream is unavailable instead (ERR-7).
func TestNothingIsMissingWhileUpstreamIsDown(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	w.Set(cache.Endpoint, "there", endpoints("there", 1, "127.0.0.1:1"))
	cp := startControlPlane(t, w.Mux())
	cp.Stop()
	sets := append([]string{"timers.dne_timeout=1s", "timers.unavailable_after=500ms"}, quickBackoff...)
	r := startRelay(t, cp.addr, sets...)

	cold, coldSotw := openDelta(t, r.addr, "cold"), openSotw(t, r.addr, "cold-sotw")
	cold.Subscribe(cache.Endpoint, "there", "missing")
	coldSotw.Watch(cache.Cluster, "there")
	eventually(t, patience, func() error { return first(unavailable(cold.End()), unavailable(coldSotw.End())) })
	if err := first(cold.NeverMissing(cache.Endpoint, "there"), cold.NeverMissing(cache.Endpoint, "missing")); err != nil {
		t.Fatal(err)
	}

	// The timer runs only while upstream is connected: half of it before the next
	// outage does not count.
	cp.Start()
	d := newDelta(t, r.addr, "delta")
	d.persistent = true // the relay may not have noticed yet
	d.Open()
	d.Subscribe(cache.Endpoint, "there", "missing")
	eventually(t, patience, func() error { return d.Has(cache.Endpoint, "there") })
	s := openSotw(t, r.addr, "sotw")
	s.agent = "envoy" // gRPC's own would lose the stream (ERR-7)
	s.Watch(cache.Endpoint, "there", "missing")
	eventually(t, patience, func() error { return s.Has(cache.Endpoint, "there") })
	cp.Stop()
	throughout(t, 1500*time.Millisecond, func() error {
		return first(d.NeverMissing(cache.Endpoint, "missing"), d.Has(cache.Endpoint, "there"), s.Has(cache.Endpoint, "there"), d.Sound(), s.Sound())
	})
	if s.Missing(cache.Endpoint, "missing") == nil {
		t.Fatal("a SotW client was told that a name is missing while upstream was down")
	}
	if err := first(d.Failed(cache.Endpoint, "missing", codes.Unavailable), s.Failed(cache.Endpoint, "missing", codes.Unavailable)); err != nil {
		t.Error(err)
	}
	w.Set(cache.Endpoint, "missing", endpoints("missing", 1, "127.0.0.1:1"))
	cp.Start()
	eventually(t, patience, func() error {
		return first(d.Has(cache.Endpoint, "there", "missing"), s.Has(cache.Endpoint, "there", "missing"))
	})
	if err := first(d.NeverMissing(cache.Endpoint, "missing"), d.Sound(), s.Sound()); err != nil {
		t.Error(err)
	}
}

// unavailable complains unless a stream was ended UNAVAILABLE, with the reason.
func unavailable(err error) error {
	if status.Code(err) != codes.Unavailable || !strings.Contains(status.Convert(err).Message(), "control plane") {
		return fmt.Errorf("the stream ended with %v, not UNAVAILABLE because of the control plane", err)
	}
	return nil
}

// Clients of one group share what they have in common and nothing else: each gets
// what it named, and what exists by name only does not appear to those who want
// everything (WILD-12, H-4), in either order of arrival.
func TestEachGetsItsOwn(t *testing.T) {
	for _, wildcardFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("wildcard first=%v", wildcardFirst), func(t *testing.T) {
			t.Parallel()
			shown, hidden := newLinear(t), newLinear(t)
			for _, name := range []string{"a", "b"} {
				shown.Set(cache.Cluster, name, staticCluster(name, 1))
			}
			for _, name := range []string{"a", "b", "x", "y"} {
				hidden.Set(cache.Cluster, name, staticCluster(name, 1))
			}
			cp := startControlPlane(t, onDemand{Cache: hidden.Mux(), shown: shown.Mux()})
			r := startRelay(t, cp.addr, "timers.dne_timeout=1h")
			everything, x, y, both := openDelta(t, r.addr, "everything"), openDelta(t, r.addr, "x"), openDelta(t, r.addr, "y"), openDelta(t, r.addr, "both")
			sotwX, sotwY := openSotw(t, r.addr, "sotw-x"), openSotw(t, r.addr, "sotw-y")
			if wildcardFirst {
				everything.Wildcard(cache.Cluster)
				eventually(t, patience, func() error { return everything.Has(cache.Cluster, "a", "b") })
			}
			x.Subscribe(cache.Cluster, "x")
			y.Subscribe(cache.Cluster, "y", "a")
			sotwX.Watch(cache.Cluster, "x")
			sotwY.Watch(cache.Cluster, "y")
			named := func() error {
				return first(x.Has(cache.Cluster, "x"), y.Has(cache.Cluster, "a", "y"), sotwX.Has(cache.Cluster, "x"), sotwY.Has(cache.Cluster, "y"))
			}
			eventually(t, patience, named)
			if !wildcardFirst {
				everything.Wildcard(cache.Cluster)
			}
			both.Wildcard(cache.Cluster)
			both.Subscribe(cache.Cluster, "x")
			all := func() error {
				return first(everything.Has(cache.Cluster, "a", "b"), both.Has(cache.Cluster, "a", "b", "x"), named())
			}
			eventually(t, patience, all)

			for revision := 2; revision <= 4; revision++ {
				for _, name := range []string{"a", "b", "x", "y"} {
					hidden.Set(cache.Cluster, name, staticCluster(name, revision))
				}
				shown.Set(cache.Cluster, "a", staticCluster("a", revision))
			}
			eventually(t, patience, func() error {
				return first(x.AtLeast(cache.Cluster, "x", 4), y.AtLeast(cache.Cluster, "y", 4), y.AtLeast(cache.Cluster, "a", 4),
					both.AtLeast(cache.Cluster, "x", 4), both.AtLeast(cache.Cluster, "a", 4), everything.AtLeast(cache.Cluster, "a", 4),
					sotwX.AtLeast(cache.Cluster, "x", 4), sotwY.AtLeast(cache.Cluster, "y", 4))
			})
			// Row l: without its name, x is what it is to the wildcard: not there.
			both.Unsubscribe(cache.Cluster, "x")
			eventually(t, patience, func() error {
				return first(both.Has(cache.Cluster, "a", "b"), both.Missing(cache.Cluster, "x"), x.Has(cache.Cluster, "x"))
			})
			// Whoever gets more than it asked for complains of that itself.
			throughout(t, quiet, func() error { return first(named(), everything.Has(cache.Cluster, "a", "b")) })
			for _, c := range []interface{ Sound() error }{everything, x, y, both, sotwX, sotwY} {
				if err := c.Sound(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// onDemand is a control plane that shows less to a wildcard than it knows by name.
type onDemand struct {
	gcp.Cache
	shown gcp.Cache
}

// CreateDeltaWatch implements gcp.Cache.
func (o onDemand) CreateDeltaWatch(r *gcp.DeltaRequest, s gcp.Subscription, responses chan gcp.DeltaResponse) (func(), error) {
	if s.IsWildcard() {
		return o.shown.CreateDeltaWatch(r, s, responses)
	}
	return o.Cache.CreateDeltaWatch(r, s, responses)
}
