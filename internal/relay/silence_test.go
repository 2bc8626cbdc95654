package relay

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// logText is a log that can be read while it is written.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// count is how many lines contain every one of the parts.
func (l *logText) count(parts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
lines:
	for line := range strings.Lines(l.text.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		n++
	}
	return n
}

// TestSilenceAtDefaults: with the timers as they are by default, people are told about a
// control plane that says nothing of a type 15 s after it was asked, once, and of the
// end of that.
func TestSilenceAtDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := config.Load("", []string{"upstream.node.id=edge-1", "upstream.node.cluster=shop"})
		if err != nil {
			t.Fatal(err)
		}
		log := &logText{}
		w := &world{t: t, up: xdstest.NewNetwork(), down: xdstest.NewNetwork()}
		w.plane = xdstest.NewControlPlane(w.up.Listener())
		if w.relay, err = New(c, Options{Dial: w.up.Dial, Log: slog.New(slog.NewTextHandler(log, nil))}); err != nil {
			t.Fatal(err)
		}
		w.relay.Serve(w.down.Listener())
		one, two := w.open(w.dial(), "one", false), w.open(w.dial(), "two", false)
		begun := time.Now()
		warnings := func() int {
			return log.count("level=WARN", "does not answer for a type that clients wait for", "type="+string(cache.Cluster), "wildcard=true", "node=edge-1", "cluster=shop", "clients=2", "address="+c.Upstream.Address)
		}
		for ; warnings() == 0 && time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
			synctest.Wait()
		}
		if took := time.Since(begun); took < c.Timers.DNETimeout || took > c.Timers.DNETimeout+time.Second {
			t.Errorf("people are told after %v, want %v and not much more", took, c.Timers.DNETimeout)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := log.count("level=WARN"); n != 1 {
			t.Errorf("%d warnings after an hour, want one", n)
		}
		if n := w.relay.Silent()[cache.Cluster]; n != 1 {
			t.Errorf("%d groups count as silent, want one", n)
		}
		s := w.relay.Upstream()[defaultGroup]
		if len(s.Entries) != 1 || len(s.Entries[0].Lanes) != 1 || !s.Entries[0].Lanes[0].Silent || s.Entries[0].Lanes[0].Asked.Sub(begun) > time.Second {
			t.Errorf("its state is %+v", s)
		}

		_, _ = w.plane.Heard()
		w.respond("CDS a@1")
		time.Sleep(time.Second)
		synctest.Wait()
		if one.version("a") == "" || two.version("a") == "" || log.count("answers for a type", "type="+string(cache.Cluster)) != 1 || len(w.relay.Silent()) != 0 {
			t.Error("that the control plane speaks has not ended it")
		}
		for _, conn := range w.conns {
			conn.Close()
		}
		w.clients.Wait()
		w.relay.Close(0)
		w.plane.Stop()
	})
}

// TestUnaskedIsCounted: what the control plane sends of a type though no client of the
// group has asked for it is counted (UP-9).
func TestUnaskedIsCounted(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		c := w.open(w.dial(), "c", false)
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: []string{"a"}})
		synctest.Wait()
		_, _ = w.plane.Heard()
		w.respond("EDS a@1 b@1 c@1")
		synctest.Wait()
		if n := w.seenAbove.unasked.Load(); n != 2 || c.version("a") == "" {
			t.Errorf("%d resources were dropped, want 2; the client has %q of the third", n, c.version("a"))
		}
	})
}
