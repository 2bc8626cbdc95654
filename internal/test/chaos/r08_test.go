//go:build linux

package chaos

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// R8: all clients read one byte a second while everything changes all the time. The
// relay's memory does not grow with it, and all of them catch up at last.
func TestR8_AllSlow(t *testing.T) {
	const perSecond = 100
	minutes, minute := 3, time.Second
	if long() {
		minutes, minute = 10, time.Minute
	}
	w := usual()
	w.ClusterEvery, w.Padding = 2, 1000
	r := begin(t, "R8", "all 1000 clients read 1 byte/s with 100 updates/s for 10 min: RSS growth < 10 % after minute 1", "50 clusters of 1.1 KiB, 50 updates/s of them, and 500 endpoint assignments, 50 updates/s; what piles up for a client is so larger than its HTTP/2 window of 64 KiB. A client takes as many seconds over a response as that has bytes, and only then ACKs it and reads on; downstream.stall_timeout is 0, so that nobody is sent away for it; timers.ack_timeout is 2 s, so that what can pile up has piled up within the first minute. The relay runs with GOGC=25, so that its memory is seen without garbage")
	r.note("with Go's default GOGC=100 the largest RSS was 20 %% above that of minute 1, while the least heap stood still: the collector lets the heap double before it works")
	h := newHistory(w)
	up := startUpstream(t, h)
	relay := newRelay(t, up.addr, "downstream.stall_timeout=0s", "timers.ack_timeout=2s")
	relay.Env = []string{"GOGC=25"} // what is garbage is not what a client costs
	relay.Start()
	size := thousand()
	size.sotw = 0 // a SotW client is sent full sets, and R8 is about what is not sent
	r.fleet = startFleet(t, h, relay.Addr, size)
	idle, err := relay.Resident()
	if err != nil {
		t.Fatal(err)
	}
	r.fleet.trickle(true)
	stop := up.Churn(perSecond)

	var most, floors []float64 // of each minute
	for range minutes {
		seen := watch(relay, 0)
		pause(context.Background(), minute)
		f := seen()
		most, floors = append(most, float64(f.rss>>10)), append(floors, float64(f.heap>>10))
	}
	stop()
	slow := r.fleet.disconnects.Load()
	r.fleet.trickle(false)
	took := r.fleet.Converge()

	r.tell("clients", float64(len(r.fleet.clients)), "")
	r.tell("updates", float64(h.Step()), "")
	r.tell("RSS before", float64(idle>>10), "KiB")
	for i := range minutes {
		r.tell(fmt.Sprintf("minute %d: largest RSS", i+1), most[i], "KiB")
	}
	r.tell("minute 1: least heap", floors[0], "KiB")
	r.tell("minute 2: least heap", floors[1], "KiB")
	r.tell("last minute: least heap", floors[minutes-1], "KiB")
	r.below("growth of the least heap from minute 2 to the last", 100*(floors[minutes-1]/floors[1]-1), 10, "%")
	r.below("growth of the largest RSS after minute 1", 100*(slices.Max(most[1:])/most[0]-1), 10, "%")
	r.tell("streams that ended meanwhile", float64(slow), "")
	r.tell("all have everything after they read again", seconds(took), "s")
	r.sound()
}
