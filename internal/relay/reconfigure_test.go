package relay

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
)

// reconfigure changes keys of the configuration in force.
func (w *world) reconfigure(set ...string) {
	w.t.Helper()
	c := *w.relay.Config()
	for _, s := range set {
		key, value, _ := strings.Cut(s, "=")
		if err := c.Override("test", key, value); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := c.Validate(); err != nil {
		w.t.Fatal(err)
	}
	if err := w.relay.Reconfigure(c.Keeping(w.relay.Config())); err != nil {
		w.t.Fatal(err)
	}
}

// TestReconfigureStall: a client that reads nothing is ended by the timeout that is set
// while its response waits, whether there was one before or not; others stay.
func TestReconfigureStall(t *testing.T) {
	for _, before := range []string{"0s", "1h"} {
		inWorld(t, []string{"downstream.stall_timeout=" + before}, func(w *world) {
			deaf, other := w.open(w.dial(), "deaf", true), w.open(w.dial(), "other", false)
			synctest.Wait()
			for n := range 60 {
				w.respond("CDS bulk@%d%s", n, bulk)
				time.Sleep(time.Second)
			}
			if n := w.relay.Count(); n != 2 {
				t.Fatalf("%d streams are open, want both", n)
			}
			w.reconfigure("downstream.stall_timeout=7s")
			w.respond("CDS bulk@100%s", bulk)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if n := w.relay.Count(); n != 1 || w.seen.stalled != 1 {
				t.Errorf("before it was %s: %d streams are open, and %d were ended for not reading", before, n, w.seen.stalled)
			}
			if _, err := other.over(); err != nil {
				t.Errorf("another stream ended, too: %v", err)
			}
			deaf.listen()
		})
	}
}

// TestReconfigureRate: a stream that is open may send as much as is set now.
func TestReconfigureRate(t *testing.T) {
	inWorld(t, []string{"downstream.request_rate=1000", "downstream.request_burst=1000"}, func(w *world) {
		c := w.open(w.dial(), "greedy", false)
		synctest.Wait()
		ask := func(n int) (taken int) {
			before := w.seen.asked()
			for range n {
				c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Cluster), ResourceNamesSubscribe: []string{"*"}})
			}
			synctest.Wait()
			return w.seen.asked() - before
		}
		if n := ask(100); n != 100 {
			t.Fatalf("%d of 100 requests were taken in", n)
		}
		w.reconfigure("downstream.request_rate=1", "downstream.request_burst=5")
		if n := ask(100); n > 10 {
			t.Errorf("%d requests were taken in at once, want 5 and the one that waits", n)
		}
		w.reconfigure("downstream.request_rate=0")
		time.Sleep(2 * time.Second) // the one that waits has been told how long
		synctest.Wait()
		if n := ask(100); n != 100 {
			t.Errorf("%d of 100 requests were taken in without a limit", n)
		}
	})
}

// TestRequestRateOutlivesStreams: a client that opens its streams again may not send as much at once as with the first
// ones, in whatever order they end.
func TestRequestRateOutlivesStreams(t *testing.T) {
	inWorld(t, []string{"downstream.request_rate=1", "downstream.request_burst=20"}, func(w *world) {
		conn := w.dial()
		takenIn := func(opened ...*client) int {
			before := w.seen.asked()
			for _, c := range opened {
				for range 19 {
					c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Cluster), ResourceNamesSubscribe: []string{"*"}})
				}
				synctest.Wait() // what waits to be taken in when a stream ends is not
				_ = c.stream.CloseSend()
				synctest.Wait()
			}
			return w.seen.asked() - before
		}
		if n := takenIn(w.open(conn, "greedy", false), w.open(conn, "greedy too", false)); n < 38 {
			t.Fatalf("%d requests of the first streams were taken in at once, want all", n)
		}
		if n := takenIn(w.open(conn, "greedy", false), w.open(conn, "greedy too", false)); n > 4 {
			t.Errorf("%d requests of the next streams were taken in at once", n)
		}
	})
}

// TestReconfigureReachesSessions: what Sessions are told holds for streams that are open.
func TestReconfigureReachesSessions(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		c := w.open(w.dial(), "c", false)
		synctest.Wait()
		w.publish()
		synctest.Wait()
		w.reconfigure("downstream.max_name_bytes=3B")
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: []string{"long"}})
		synctest.Wait()
		if _, err := c.over(); err == nil || !strings.Contains(err.Error(), "max_name_bytes") {
			t.Errorf("a name that is too long now: %v", err)
		}
		if c = w.open(w.dial(), "c2", false); c == nil {
			t.Fatal("no stream")
		}
		synctest.Wait()
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: []string{"long"}})
		synctest.Wait()
		if _, err := c.over(); err == nil {
			t.Error("a new stream goes by the old limit")
		}
	})
}

// TestReconfigureStreams: the stream to the control plane goes on when nothing that concerns
// it changes, and is opened again, with versions, when it is reached in another way. What a
// client has is not sent again, nor removed.
func TestReconfigureStreams(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		c := w.open(w.dial(), "c", false)
		synctest.Wait()
		w.publish()
		synctest.Wait()
		opened := func() int {
			synctest.Wait()
			n := 0
			for _, h := range w.relay.Upstream() {
				n += int(h.Entries[0].Connected.UnixNano() % 1e18)
			}
			return n
		}
		since := opened()
		w.reconfigure("timers.ack_timeout=3s", "timers.group_linger=3s", "upstream.failover_after=9s", "upstream.insecure=true",
			"cache.mass_removal_guard.fraction=0.5", "upstream.backoff.max=3s")
		time.Sleep(5 * time.Second)
		if opened() != since {
			t.Error("the stream was opened again although nothing of it has changed")
		}
		for _, set := range []string{"upstream.keepalive=20s", "upstream.headers={x-a: b}", "upstream.max_connections=3", "timers.dne_timeout=9s", "upstream.max_receive_bytes=1MiB", "upstream.mode=delta"} {
			since = opened()
			w.reconfigure(set)
			time.Sleep(5 * time.Second)
			if opened() == since {
				t.Errorf("%s: the stream was not opened again", set)
			}
		}
		if n := c.responses; n != 1 || c.version("a") != w.published[0].version {
			t.Errorf("the client was sent %d responses, and has %q", n, c.version("a"))
		}
		if _, err := c.over(); err != nil {
			t.Errorf("the client's stream has ended: %v", err)
		}
	})
}

// TestReconfigureRefused: credentials that cannot be read change nothing.
func TestReconfigureRefused(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		was := w.relay.Config()
		for _, set := range []string{"upstream.fallbacks=[{address: '127.0.0.1:9', tls: {ca: /none}}]", "downstream.tls={cert: /none, key: /none}"} {
			c := *was
			key, value, _ := strings.Cut(set, "=")
			if err := c.Override("test", key, value); err != nil {
				t.Fatal(err)
			}
			if err := w.relay.Reconfigure(&c); err == nil || w.relay.Config() != was {
				t.Errorf("%s: %v, and another configuration is in force: %t", set, err, w.relay.Config() != was)
			}
		}
	})
}

// TestCheck: what serve refuses and what it would do without, each with its place.
func TestCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	fourMistakes(t)
	c, err := config.Load("relay.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	var all, hard []string
	for _, e := range config.All(CheckAll(c)) {
		all = append(all, e.Brief())
	}
	for _, e := range config.All(Check(c)) {
		hard = append(hard, e.Brief())
	}
	want := []string{
		`relay.yaml:2:13: upstream.tls.ca: cannot read "none.pem": no such file or directory (check the path and the permissions)`,
		`relay.yaml:3:25: upstream.headers.x-a.file: cannot read "none.token": no such file or directory (check the path, the permissions and what the file holds)`,
		`relay.yaml:4:25: cache.snapshot.dir: "open" cannot be used: others can write to it (mode 0777); name a directory that only the relay uses, with mode 0700 (it has to be one that this user may write to, and nobody else)`,
		`relay.yaml:4:41: cache.snapshot.key_file: "key": everybody can read or write it (mode 0644); chmod o-rwx (the snapshot would be as good as in clear)`,
	}
	if got := strings.Join(all, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("validate says\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if got := strings.Join(hard, "\n"); got != want[0]+"\n"+want[3] {
		t.Errorf("serve says\n%s", got)
	}
}

// fourMistakes are a configuration with four mistakes in the files it names.
func fourMistakes(t *testing.T) {
	t.Helper()
	if err := os.Mkdir("open", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod("open", 0o777); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"relay.yaml": "upstream:\n  tls: {ca: none.pem}\n  headers: {x-a: {file: none.token}}\ncache: {snapshot: {dir: open, key_file: key}}\n",
		"key":        strings.Repeat("k", 32),
	} {
		if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod("key", 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestReconfigureWhileLooked: who looks at the relay, and clients that come, may do so while
// it takes another configuration. The race detector judges.
func TestReconfigureWhileLooked(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		done := make(chan struct{})
		var others sync.WaitGroup
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					w.relay.ControlPlanes()
					w.relay.Upstream()
					w.relay.Readiness()
					w.relay.Clients()
				}
			}
		})
		conn := w.dial()
		others.Go(func() {
			for n := range 200 {
				c, err := openStream(conn, "c"+strconv.Itoa(n))
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.stream.CloseSend()
			}
		})
		for n := range 200 {
			w.reconfigure("upstream.fallbacks=[{address: '127.0.0.1:"+strconv.Itoa(n+1)+"', insecure: true}, {address: '127.0.0.1:"+strconv.Itoa(n+2)+"', insecure: true}]", "timers.ack_timeout="+strconv.Itoa(n+1)+"s")
		}
		close(done)
		others.Wait()
	})
}
