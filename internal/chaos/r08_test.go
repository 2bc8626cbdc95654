//go:build linux

package chaos

import (
	"context"
	"testing"
	"time"
)

// R8: all clients read one byte a second while everything changes all the time. The
// relay's memory does not grow with it, and all of them catch up at last.
func TestR8_AllSlow(t *testing.T) {
	const perSecond = 100
	settled, lasts := time.Second, 3*time.Second
	if long() {
		settled, lasts = time.Minute, 10*time.Minute
	}
	w := usual()
	w.ClusterEvery, w.Padding = 2, 1000
	r := begin(t, "R8", "all 1000 clients read 1 byte/s with 100 updates/s for 10 min: RSS growth < 10 % after minute 1", "50 clusters of 1.1 KiB, 50 updates/s of them, and 500 endpoint assignments, 50 updates/s; what piles up for a client is so larger than its HTTP/2 window of 64 KiB. A client takes as many seconds over a response as that has bytes, and only then ACKs it and reads on; downstream.stall_timeout is 0, so that nobody is sent away for it")
	h := newHistory(w)
	up := startUpstream(t, h)
	relay := startRelay(t, up.addr, "downstream.stall_timeout=0s")
	size := thousand()
	size.sotw = 0 // a SotW client is sent full sets, and R8 is about what is not sent
	r.fleet = startFleet(t, h, relay.addr, size)
	idle := relay.rss()
	r.fleet.trickle(true)
	stop := up.Churn(perSecond)

	pause(context.Background(), settled)
	base, most := relay.rss(), int64(0)
	for end := time.Now().Add(lasts - settled); time.Now().Before(end); {
		pause(context.Background(), time.Second)
		most = max(most, relay.rss())
	}
	stop()
	slow := r.fleet.disconnects.Load()
	r.fleet.trickle(false)
	took := r.fleet.Converge()

	r.tell("clients", float64(len(r.fleet.clients)), "")
	r.tell("updates", float64(h.Step()), "")
	r.tell("RSS before", float64(idle>>10), "KiB")
	r.tell("RSS after minute 1", float64(base>>10), "KiB")
	r.tell("largest RSS after that", float64(most>>10), "KiB")
	r.below("growth after minute 1", 100*float64(most-base)/float64(base), 10, "%")
	r.tell("streams that ended meanwhile", float64(slow), "")
	r.tell("all have everything after they read again", seconds(took), "s")
	r.sound()
}
