package relay

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/health"
)

// A control plane that is away, and one that says nothing, leave the relay alive; the
// loop towards it that stands still does not, and is named.
func TestAlive_LoopThatStandsStill(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.open(w.dial(), "a", false)
		time.Sleep(time.Hour + time.Second) // the control plane is silent; what follows falls between two rounds
		if ok, why := health.Verdict(w.relay.Liveness()); !ok {
			t.Fatalf("a silent control plane: %s", why)
		}
		hold := make(chan struct{})
		w.seenAbove.hold.Store(&hold)
		w.respond("CDS a@1(10s)")
		time.Sleep(10*time.Second + aliveRounds*aliveEvery - 2*aliveEvery)
		if ok, why := health.Verdict(w.relay.Liveness()); !ok {
			t.Errorf("too soon: %s", why)
		}
		time.Sleep(3 * aliveEvery)
		if ok, why := health.Verdict(w.relay.Liveness()); ok || !strings.Contains(why, "the loop of group default") {
			t.Errorf("the loop stands still: %v, %q", ok, why)
		}
		if ready, why := w.relay.Ready(); !ready {
			t.Errorf("that is not what readiness is about: %s", why)
		}
		close(hold)
		time.Sleep(2 * aliveEvery)
		if ok, why := health.Verdict(w.relay.Liveness()); !ok {
			t.Errorf("the loop goes on: %s", why)
		}
	})
}

// Asking for a sign of life takes the locks that clients' requests take.
func TestAlive_TakesTheLocks(t *testing.T) {
	c := config.Default()
	r, err := New(&c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(0)
	r.groups.mu.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.groups.touch()
	}()
	for waits := false; !waits; waits = waitsForLock("touch") {
		select {
		case <-done:
			r.groups.mu.Unlock()
			t.Fatal("it did not wait for the lock of the groups")
		default:
			runtime.Gosched()
		}
	}
	r.groups.mu.Unlock()
	<-done
}

// waitsForLock: a goroutine that has called a function waits for a mutex.
func waitsForLock(function string) bool {
	stacks := make([]byte, 1<<20)
	for _, g := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(g, "sync.Mutex.Lock") && strings.Contains(g, function) {
			return true
		}
	}
	return false
}

// The checks behind readiness come in a fixed order, and each says its own reason.
func TestReadiness_Checks(t *testing.T) {
	inWorld(t, []string{"downstream.ready_types=[CDS]"}, func(w *world) {
		synctest.Wait()
		if w.relay.Started() {
			t.Error("it was never ready")
		}
		if got, want := fmt.Sprint(w.relay.Readiness()), "[{not_draining true } {listening true } {certificate true } {ready_types false waiting for upstream to answer for CDS}]"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		w.respond("CDS a@1")
		synctest.Wait()
		if ready, why := w.relay.Ready(); !ready || why != "ready" || !w.relay.Started() {
			t.Errorf("ready: %v, %q, started: %v", ready, why, w.relay.Started())
		}
		w.relay.ready.stop()
		if ready, why := w.relay.Ready(); ready || why != "shutting down" || !w.relay.Started() {
			t.Errorf("ready: %v, %q, started: %v", ready, why, w.relay.Started())
		}
	})
}
