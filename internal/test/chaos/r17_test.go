//go:build linux

package chaos

import (
	"context"
	"syscall"
	"testing"
	"time"
)

// R17: the relay stands still for a while, as in a stopped or starved machine.
func TestR17_Pause(t *testing.T) {
	still := 2 * time.Second
	if long() {
		still = 30 * time.Second
	}
	r := begin(t, "R17", "pause relay (SIGSTOP) 30 s: no crash, no removal, clients converge < 3 s after CONT", usualLoad+"; 50 updates/s all the time")
	w := usual()
	w.RemoveOneIn = 0 // any removal is one too many
	h := newHistory(w)
	up := startUpstream(t, h)
	relay := startRelay(t, up.addr)
	r.fleet = startFleet(t, h, relay.Addr, thousand())
	stop := up.Churn(50)
	pause(context.Background(), span(3*time.Second))
	relay.Signal(syscall.SIGSTOP)
	pause(context.Background(), still)
	relay.Signal(syscall.SIGCONT)
	took := r.fleet.Converge()
	stop()
	r.fleet.Converge()

	r.tell("pause", seconds(still), "s")
	r.below("all clients converged after CONT", seconds(took), 3, "s")
	r.none("removals", r.fleet.removals.Load())
	r.sound()
	r.connected()
}
