//go:build linux

package chaos

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// R7: a few clients stop reading, and the others must not feel it.
func TestR7_SomeSlow(t *testing.T) {
	const parts = 3 // in which a round is measured
	stall, rounds, calm, size := time.Second, 1, time.Second*9/10, thousand()
	if long() {
		stall, rounds, calm = 30*time.Second, 5, 27*time.Second
	}
	size.big = max(4, size.clients/100)
	w := usual()
	w.BigEvery = 10
	r := begin(t, "R7", "1 % of 1000 clients stop reading: others' p99 changes < 10 %; each stalled client costs < 512 KiB; closed at 30 s +-2 s; all reconverge",
		usualLoad+"; 50 updates/s, of which 5/s change a 64 KiB assignment that only the clients ask for that stall, so that their windows fill at once (timers.ack_timeout is 200 ms, so that not even a missing ACK spares them). Half of them stop to read their stream, while their transport answers pings; half stop to read their socket. The relay runs with GOGC=25, so that its heap is seen without garbage")
	h := newHistory(w)
	up := startUpstream(t, h)
	relay := newRelay(t, up.addr, "timers.ack_timeout=200ms", fmt.Sprintf("downstream.stall_timeout=%v", stall))
	relay.Env = []string{"GOGC=25"} // what is garbage is not what a client costs
	relay.Start()
	r.fleet = startFleet(t, h, relay.Addr, size)
	slow := r.fleet.clients[len(r.fleet.clients)-size.big:]
	for _, c := range slow {
		r.fleet.ignore(c, true)
	}
	stop := up.Churn(50)

	var without, with latencies
	var calmly, stalling []floor
	first, last, reconverged := time.Duration(0), time.Duration(0), time.Duration(0)
	closed := 0
	for range rounds {
		done := watch(relay, stall/3)
		for range parts { // slices of one length: the longer one, the more befalls it
			r.fleet.measure(calm/parts, &without)
		}
		calmly = append(calmly, done())
		var socks []*socket
		var resumes []func()
		for i, c := range slow {
			s, resume := c.stall(i%2 == 1)
			socks, resumes = append(socks, s), append(resumes, resume)
		}
		// Not up to their end: what is measured is the time during which they stall.
		done = watch(relay, stall/3) // when they are waited for
		for range parts {
			r.fleet.measure(calm/parts, &with)
		}
		stalling = append(stalling, done())
		for i, s := range socks {
			if i%2 == 1 {
				continue // it would not see its end
			}
			eventually(t, func() error {
				if _, ok := s.silence(); !ok {
					return fmt.Errorf("a client that does not read is not sent away")
				}
				return nil
			})
			d, _ := s.silence()
			if closed++; first == 0 || d < first {
				first = d
			}
			last = max(last, d)
		}
		for _, resume := range resumes {
			resume()
		}
		reconverged = max(reconverged, r.fleet.converge(slow))
	}
	for _, c := range slow {
		r.fleet.ignore(c, false)
	}
	stop()
	r.fleet.Converge()

	r.tell("clients", float64(size.clients), "")
	r.tell("clients that stall", float64(size.big), "")
	r.tell("rounds", float64(rounds), "")
	r.compare(&without, &with, "stalled clients")
	var each, rss []int64
	for i := range rounds { // each beside its own, because a process grows in its youth
		each = append(each, (stalling[i].heap-calmly[i].heap)/int64(size.big))
		rss = append(rss, stalling[i].rss-calmly[i].rss)
	}
	slices.Sort(each)
	slices.Sort(rss)
	r.tell("heap floor without stalled clients, last round", float64(calmly[rounds-1].heap>>10), "KiB")
	r.tell("heap floor with them, last round", float64(stalling[rounds-1].heap>>10), "KiB")
	r.below("heap for each stalled client, median of rounds", float64(each[rounds/2])/1024, 512, "KiB")
	r.tell("largest RSS, with them less without them, median of rounds", float64(rss[rounds/2]>>10), "KiB")
	r.tell("ends of stalled streams that were timed", float64(closed), "")
	r.within("earliest end after the last byte", seconds(first), "s", "28 to 32", first >= 28*time.Second)
	r.within("latest end after the last byte", seconds(last), "s", "28 to 32", last <= 32*time.Second)
	r.tell("all reconverged after they read again", seconds(reconverged), "s")
	r.sound()
	r.connected()
}

// floor is the memory of a relay over some time: the least heap, which is what
// is left after collections, and the largest resident size.
type floor struct{ heap, rss int64 }

// watch looks at the relay, after a while, until the returned function is called.
func watch(r *peer.Relay, after time.Duration) (stop func() floor) {
	ctx, cancel := context.WithCancel(context.Background())
	seen := make(chan floor, 1)
	go func() {
		var f floor
		pause(ctx, after)
		for pause(ctx, 100*time.Millisecond) {
			m, err := r.Scrape()
			rss, fault := r.Resident()
			if err != nil || fault != nil {
				continue // a figure less; that the relay lives is seen elsewhere
			}
			if heap := int64(m["go_memstats_heap_alloc_bytes"]); f.heap == 0 || heap < f.heap {
				f.heap = heap
			}
			f.rss = max(f.rss, rss)
		}
		seen <- f
	}()
	return func() floor {
		cancel()
		return <-seen
	}
}
