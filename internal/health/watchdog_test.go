package health

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inBubble runs a watchdog over parts, every second, with a patience of three rounds.
func inBubble(t *testing.T, parts []Part, f func(w *Watchdog, log *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := New(Options{Every: time.Second, Rounds: 3, Parts: parts, Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(ctx)
		}()
		f(w, &log)
		cancel()
		<-done
	})
}

// A part that does not return is stuck after three rounds, and no sooner; when it
// returns, all is well again. Each change is one line of the log.
func TestPartThatDoesNotReturn(t *testing.T) {
	var hold atomic.Pointer[chan struct{}]
	parts := []Part{
		{"moves", func() string { return "" }},
		{"hangs", func() string {
			if h := hold.Load(); h != nil {
				<-*h
			}
			return ""
		}},
	}
	inBubble(t, parts, func(w *Watchdog, log *bytes.Buffer) {
		time.Sleep(10500 * time.Millisecond)
		if ok, why := Verdict(w.Checks()); !ok {
			t.Fatalf("a sound relay: %s", why)
		}
		held := make(chan struct{})
		hold.Store(&held)
		time.Sleep(3 * time.Second) // it is asked, and then missed twice
		if ok, why := Verdict(w.Checks()); !ok {
			t.Fatalf("after two rounds: %s", why)
		}
		time.Sleep(time.Second)
		ok, why := Verdict(w.Checks())
		if ok || why != "no sign of life for 3s" {
			t.Errorf("after three rounds: %v, %q", ok, why)
		}
		if c := w.Checks(); !c[0].OK || c[1].OK || c[1].Name != "hangs" {
			t.Errorf("checks: %+v", c)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), "part=hangs") {
			t.Errorf("%d lines of it:\n%s", n, log)
		}
		close(held)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if ok, why := Verdict(w.Checks()); !ok || !strings.Contains(log.String(), "goes on") {
			t.Errorf("it goes on: %v, %q\n%s", ok, why, log)
		}
	})
}

// A part that says what stands still is stuck after three rounds in which it does.
func TestPartThatSaysSo(t *testing.T) {
	var moves atomic.Bool
	part := Part{"loops", func() string {
		if moves.Load() {
			return ""
		}
		return "the loop of group a"
	}}
	inBubble(t, []Part{part}, func(w *Watchdog, _ *bytes.Buffer) {
		for _, does := range []bool{false, false, true, false, false} { // never three in a row
			moves.Store(does)
			time.Sleep(time.Second)
			synctest.Wait()
			if ok, why := Verdict(w.Checks()); !ok {
				t.Errorf("it moved two rounds ago: %s", why)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if ok, why := Verdict(w.Checks()); ok || why != "no sign of life for 3s: the loop of group a" {
			t.Errorf("%v, %q", ok, why)
		}
	})
}
