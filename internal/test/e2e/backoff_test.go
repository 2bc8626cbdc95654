package e2e

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
	"github.com/xds-relay/xds-relay/upstream"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// Against a closed port, attempts follow the back-off and each is worth about one
// log line (ERR-1). The long form takes 60 s, with the default schedule.
func TestClosedPort(t *testing.T) {
	t.Parallel()
	initial, limit, span := 50*time.Millisecond, 400*time.Millisecond, 3*time.Second
	sets := []string{"upstream.backoff.initial=50ms", "upstream.backoff.max=400ms", "timers.unavailable_after=500ms"}
	if long() {
		initial, limit, span, sets = time.Second, 30*time.Second, 60*time.Second, nil
	}
	const factor, jitter = 1.6, 0.2
	watch := &attempts{}
	r := startRelayWith(t, relay.Options{Dial: watch.dial, Upstream: watch}, loopback.Reserve(t), sets...)
	d := newDelta(t, r.addr, "delta")
	d.persistent = true // it is sent away, and comes back all the time
	d.Open()
	d.Wildcard(cache.Cluster)
	wait(span)
	dials, waits := watch.seen()

	expected, at := 0, time.Duration(0)
	for delay := initial; at < span; delay = min(time.Duration(float64(delay)*factor), limit) {
		expected++
		at += delay
	}
	warnings := len(r.log.Lines("level=WARN", "cannot reach the control plane", "connection refused"))
	all := len(r.log.Lines("component=upstream"))
	t.Logf("%v: %d dials (%d without jitter), %d log lines of ends, %d of upstream in all; waits %v", span, len(dials), expected, warnings, all, waits)
	if len(dials) < expected*2/3 || len(dials) > expected*3/2+1 {
		t.Errorf("%d attempts, about %d follow the back-off", len(dials), expected)
	}
	nominal := initial
	for i, got := range waits {
		low, high := time.Duration(float64(nominal)*(1-jitter)), time.Duration(float64(nominal)*(1+jitter))
		if got < low-time.Millisecond || got > high+time.Millisecond {
			t.Errorf("wait %d is %v, not between %v and %v", i, got, low, high)
		}
		if i+1 < len(dials) {
			if gap := dials[i+1].Sub(dials[i]); gap < low {
				t.Errorf("attempt %d came %v after the one before it, not %v at least", i+1, gap, low)
			}
		}
		nominal = min(time.Duration(float64(nominal)*factor), limit)
	}
	if warnings != 1 || all != 1 {
		t.Errorf("%d log lines of ends and %d in all, of %d attempts; one tells of them all", warnings, all, len(dials))
	}
}

// attempts notes when the relay dials, and how long it means to wait. It
// implements upstream.Observer.
type attempts struct {
	upstream.Observer // none of the rest is called against a closed port

	mu    sync.Mutex
	dials []time.Time
	waits []time.Duration
}

func (a *attempts) dial(ctx context.Context, address string) (net.Conn, error) {
	a.mu.Lock()
	a.dials = append(a.dials, time.Now())
	a.mu.Unlock()
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

func (a *attempts) UpstreamReconnect(_ session.Role, _ string, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waits = append(a.waits, wait)
}

func (a *attempts) seen() ([]time.Time, []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]time.Time(nil), a.dials...), append([]time.Duration(nil), a.waits...)
}
