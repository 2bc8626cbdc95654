package relay

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
)

// bulk is a body beside which nothing else counts.
var bulk = strings.Repeat("x", 50<<10)

// TestSlow_OnePercent (target R7, without its clock): clients that stop reading are
// ended at 30 s; the others hear every change at once, and those that come back get
// what they missed.
func TestSlow_OnePercent(t *testing.T) {
	const clients, slow = 200, 2
	inWorld(t, []string{"timers.ack_timeout=100ms"}, func(w *world) {
		all := make([]*client, clients)
		for i := range all {
			all[i] = w.open(w.dial(), fmt.Sprint("c", i), i < slow)
		}
		synctest.Wait()
		begin := time.Now()
		var ended time.Time
		for n := 0; ended.IsZero() && n < 1000; n++ {
			w.respond("CDS a@%d", n)
			if n < 5 { // enough for what gRPC takes in before a send waits
				w.respond("CDS bulk@%d%s", n, bulk)
			}
			synctest.Wait()
			now, want := time.Now(), versionOf(t, cache.Cluster, fmt.Sprint("a@", n))
			for i, c := range all[slow:] {
				c.see(func() {
					if c.versions["a"] != want || !c.heard.Equal(now) {
						t.Fatalf("change %d did not reach client %d at once", n, i)
					}
				})
			}
			if w.seen.endings(session.Stalled) == slow {
				ended = now
			}
			time.Sleep(500 * time.Millisecond)
		}
		if waited := ended.Sub(begin); waited < 28*time.Second || waited > 32*time.Second {
			t.Errorf("the slow ones were ended after %v, want 30s", waited)
		}
		if n := w.relay.Count(); n != clients-slow {
			t.Errorf("%d streams are open, want %d", n, clients-slow)
		}
		for i := range slow { // now they read: what they are told is that it is over
			all[i].listen()
			if status.Code(all[i].err) != codes.Unavailable {
				t.Errorf("a slow client was told %v", all[i].err)
			}
			all[i] = w.open(w.dial(), fmt.Sprint("c", i), false)
		}
		synctest.Wait()
		for _, c := range all {
			if c.version("a") != all[clients-1].version("a") || c.version("bulk") != all[clients-1].version("bulk") {
				t.Error("a client is not up to date")
			}
		}
	})
}

// TestStalledStreamHasNeighbours: the other streams of the connection go on; without
// any, the connection is closed, since gRPC keeps what the client does not take.
func TestStalledStreamHasNeighbours(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		shared, alone := w.dial(), w.dial()
		deaf, neighbour := w.open(shared, "deaf", true), w.open(shared, "neighbour", false)
		single := w.open(alone, "single", true)
		synctest.Wait()
		for n := range 200 {
			w.respond("CDS bulk@%d%s", n, bulk)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n, d := w.relay.Count(), w.dials.Load(); n != 1 || d != 2 || w.seen.stalled != 2 {
			t.Errorf("%d streams are open, %d were ended for not reading, on %d connections", n, w.seen.stalled, d)
		}
		if want := versionOf(t, cache.Cluster, "bulk@199"+bulk); neighbour.version("bulk") != want {
			t.Error("the neighbour is not up to date")
		}
		deaf.listen()
		single.listen()
		for name, c := range map[string]*client{"deaf": deaf, "single": single} {
			if status.Code(c.err) != codes.Unavailable {
				t.Errorf("%s: %v", name, c.err)
			}
		}
		if !strings.Contains(deaf.err.Error(), "stall_timeout") {
			t.Errorf("a client that reads on is not told why its stream ended: %v", deaf.err)
		}
		w.open(alone, "again", true)
		synctest.Wait()
		if d := w.dials.Load(); d != 3 {
			t.Errorf("%d connections were made, want 3: a stalled client's was to be closed", d)
		}
	})
}

// TestSlow_AllBounded (target R8, without its clock): while nobody reads, and the
// stall timer is off, 50 changes a second for three minutes pile nothing up.
func TestSlow_AllBounded(t *testing.T) {
	const clients = 20
	inWorld(t, []string{"downstream.stall_timeout=0"}, func(w *world) {
		all := make([]*client, clients)
		for i := range all {
			all[i] = w.open(w.dial(), fmt.Sprint("c", i), true)
		}
		synctest.Wait()
		change := func(n int) {
			w.respond("CDS a%d@%d%s", n%10, n, bulk[:5<<10])
			time.Sleep(20 * time.Millisecond)
			if n%10 == 0 {
				w.respond("CDS -a%d", n%10)
			}
		}
		for n := range 1000 {
			change(n)
		}
		soon := heap()
		for n := range 8000 {
			change(n)
		}
		later := heap()
		t.Logf("R8: heap %.1f MiB after 20s, %.1f MiB after 3m", soon/(1<<20), later/(1<<20))
		if later > 1.1*soon+(1<<20) {
			t.Errorf("the heap grew from %.1f MiB to %.1f MiB", soon/(1<<20), later/(1<<20))
		}
		change(20001)
		for i, c := range all { // they wake up, and catch up
			w.clients.Go(c.listen)
			if i == 0 {
				synctest.Wait()
			}
		}
		time.Sleep(time.Minute)
		for _, c := range all {
			if c.version("a1") != versionOf(t, cache.Cluster, "a1@20001"+bulk[:5<<10]) {
				t.Error("a client did not catch up")
			}
		}
	})
}

// heap is what is reachable, in bytes.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// TestRequestRate: a stream that sends more than it may is read more slowly, and gets
// everything; ACKs are not charged, and other streams do not notice.
func TestRequestRate(t *testing.T) {
	inWorld(t, []string{"downstream.request_rate=50", "downstream.request_burst=200"}, func(w *world) {
		greedy, other := w.open(w.dial(), "greedy", false), w.open(w.dial(), "other", false)
		synctest.Wait()
		w.publish()
		synctest.Wait()
		before := w.seen.asked()
		greedy.mu.Lock() // its ACKs come after them all
		for range 400 {
			greedy.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Cluster), ResourceNamesSubscribe: []string{"*"}})
		}
		greedy.mu.Unlock()
		synctest.Wait()
		// One request opened the stream, and the one that exceeds the burst is
		// taken in before the stream waits.
		if n := w.seen.asked() - before; n != 200 {
			t.Errorf("%d requests were taken in at once, want 200", n)
		}
		w.publish()
		synctest.Wait()
		if other.version("a") != w.published[1].version {
			t.Error("another stream noticed")
		}
		time.Sleep(2 * time.Second)
		if n := w.seen.asked() - before; n < 299 || n > 301 {
			t.Errorf("%d requests were taken in after 2s, want 300", n)
		}
		time.Sleep(2100 * time.Millisecond)
		synctest.Wait()
		if n := w.seen.asked() - before; n < 400 { // with ACKs that come late
			t.Errorf("%d requests were taken in after 4s, want all", n)
		}

		limited := w.seen.limited
		if limited != 201 {
			t.Errorf("%d waits were counted, want 201", limited)
		}
		for range 1000 { // each is ACKed
			w.publish()
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if w.seen.limited != limited {
			t.Errorf("%d ACKs were charged", w.seen.limited-limited)
		}
		if v := w.published[len(w.published)-1].version; greedy.version("a") != v || other.version("a") != v {
			t.Error("a client is not up to date")
		}
	})
}

// TestPanic_Contained (target R26): a bug in any handler ends the stream it is met
// on, and is counted; the others go on.
func TestPanic_Contained(t *testing.T) {
	for _, method := range []string{"request", "ack", "response"} {
		t.Run(method, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				other := w.open(w.dial(), "other", false)
				synctest.Wait()
				w.publish()
				synctest.Wait()
				w.seen.count("", func() { w.seen.panicOn = method })
				victim := w.open(w.dial(), "victim", false)
				synctest.Wait()
				if _, err := victim.over(); status.Code(err) != codes.Internal {
					t.Errorf("the stream ended with %v", err)
				}
				w.publish()
				synctest.Wait()
				if _, err := other.over(); err != nil || other.version("a") != w.published[1].version {
					t.Errorf("another stream: %v, up to date: %v", err, other.version("a") == w.published[1].version)
				}
				if n, ended := w.seen.panics, w.seen.endings("panic"); n != 1 || ended != 1 || w.relay.Count() != 1 {
					t.Errorf("%d panics were counted, %d streams ended for one, %d are open", n, ended, w.relay.Count())
				}
			})
		})
	}
}

// TestUpstreamPanic_Contained (target R26): a bug that a response of the control plane
// brings to light ends the stream it came on, which is opened again; no client
// notices.
func TestUpstreamPanic_Contained(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		c := w.open(w.dial(), "c", false)
		synctest.Wait()
		w.publish()
		synctest.Wait()
		w.seenAbove.panicNow.Store(true)
		w.publish()
		synctest.Wait()
		if streams := w.plane.Open(); len(streams) > 0 {
			t.Errorf("still open: %q", streams)
		}
		time.Sleep(2 * time.Second) // ERR-2
		synctest.Wait()
		w.publish()
		synctest.Wait()
		if _, err := c.over(); err != nil || c.version("a") != w.published[2].version {
			t.Errorf("the client: %v, up to date: %v", err, c.version("a") == w.published[2].version)
		}
		if n := w.seenAbove.panics.Load(); n != 1 || w.plane.Streams() != 2 || w.seen.panics != 0 {
			t.Errorf("%d panics were counted, %d of clients; %d streams upstream", n, w.seen.panics, w.plane.Streams())
		}
	})
}

// TestReceivingNeverWaitsForSending: while a response waits for the client, its
// requests are taken in (incident 9).
func TestReceivingNeverWaitsForSending(t *testing.T) {
	inWorld(t, []string{"downstream.stall_timeout=0"}, func(w *world) {
		c := w.open(w.dial(), "c", true)
		synctest.Wait()
		for n := range 10 {
			w.respond("CDS bulk@%d%s", n, bulk)
			time.Sleep(11 * time.Second) // it does not ACK either
		}
		for n := range 100 {
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: []string{fmt.Sprint("e", n)}})
			time.Sleep(time.Second)
			synctest.Wait()
			if names := w.plane.Subscribed("up", "EDS"); len(names) != n+1 {
				t.Fatalf("upstream is asked for %d endpoints, the client has asked for %d", len(names), n+1)
			}
		}
		var n int
		if c.see(func() { n = c.responses }); n != 0 {
			t.Fatalf("the client has read %d responses", n)
		}
	})
}

// TestAcksOfWhatIsNotRead: clients that ACK what they have not read make the relay
// believe that it need not wait for them. Others notice nothing but a moment, once (G6).
func TestAcksOfWhatIsNotRead(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		liars := make([]*client, 3*runtime.GOMAXPROCS(0))
		for i := range liars {
			liars[i] = w.open(w.dial(), fmt.Sprint("liar", i), true)
		}
		synctest.Wait()
		honest := w.open(w.dial(), "honest", false)
		late := 0
		for n := range 20 {
			synctest.Wait()
			begin := time.Now()
			w.respond("CDS a@%d bulk@%d%s", n, n, bulk[:20<<10])
			time.Sleep(time.Second)
			synctest.Wait()
			nonce := ""
			honest.see(func() {
				if nonce = honest.nonce; honest.versions["a"] != versionOf(t, cache.Cluster, fmt.Sprint("a@", n)) {
					t.Fatalf("change %d has not come within a second", n)
				}
				if honest.heard.After(begin) {
					late++
				}
			})
			for _, c := range liars { // a push has one nonce for all
				c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Cluster), ResponseNonce: nonce})
			}
		}
		if late > 1 {
			t.Errorf("%d changes came late: those who were held up before still are in the way", late)
		}
	})
}
