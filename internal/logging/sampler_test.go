package logging

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// paper is what was written.
type paper struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements io.Writer.
func (p *paper) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all.Write(b)
}

// lines are those that contain all of the parts.
func (p *paper) lines(parts ...string) (found []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.all.String()) {
		missing := false
		for _, part := range parts {
			missing = missing || !strings.Contains(line, part)
		}
		if !missing {
			found = append(found, line)
		}
	}
	return found
}

// accounted is how many lines were written or counted.
func (p *paper) accounted(t *testing.T, parts ...string) (n int) {
	t.Helper()
	for _, line := range p.lines(parts...) {
		var l struct{ Suppressed int }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("not JSON: %s", line)
		}
		n += 1 + l.Suppressed
	}
	return n
}

func newLog(t *testing.T) (*Log, *paper) {
	t.Helper()
	p := new(paper)
	l := New(Options{Out: p})
	t.Cleanup(l.Close)
	return l, p
}

// A storm is a few lines, and then one in a while; none goes uncounted, and what differs in
// level, sentence or reason is not held back for it.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLog(t)
		clients := l.With("component", "downstream")
		const seconds, rate = 60, 1000
		for range seconds {
			for i := range rate {
				clients.Warn("client refused", "reason", "too_many", "node_id", fmt.Sprint("envoy-", i))
			}
			time.Sleep(time.Second)
		}
		l.Warn("client refused", "reason", "forbidden")
		l.Info("client refused", "reason", "too_many")
		synctest.Wait() // what the sampler writes at this very moment
		if n := len(p.lines("too_many", "WARN")); n > defaults.burst+seconds/5 {
			t.Errorf("%d lines of a storm", n)
		}
		if n := p.all.Len(); n > seconds<<10 {
			t.Errorf("%d bytes in %d s", n, seconds)
		} else {
			t.Logf("%d bytes in %d s of %d refusals a second", n, seconds, rate)
		}
		if got := len(p.lines("forbidden")) + len(p.lines("too_many", "INFO")); got != 2 {
			t.Errorf("%d of 2 other lines", got)
		}
		time.Sleep(time.Minute) // nothing more comes, and the rest is accounted for
		synctest.Wait()
		if got := p.accounted(t, "too_many", "WARN"); got != seconds*rate {
			t.Errorf("%d lines are accounted for, of %d", got, seconds*rate)
		}
		was := p.all.Len()
		time.Sleep(time.Hour)
		if synctest.Wait(); p.all.Len() != was {
			t.Error("more is written than was said")
		}
		for i := range defaults.burst {
			if l.Warn("client refused", "reason", "too_many"); len(p.lines()) == 0 {
				t.Errorf("line %d after a quiet time is held back", i)
			}
		}
	})
}

// What is held back when the log is closed is written, and so is what comes later.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLog(t)
		for range 100 {
			l.Info("client stream ended")
		}
		l.Close()
		if got := p.accounted(t, "client stream ended"); got != 100 {
			t.Errorf("%d lines are accounted for, of 100", got)
		}
		l.Info("stopped")
		if len(p.lines("stopped")) != 1 {
			t.Error("what is logged at the end is lost")
		}
	})
}

// However many kinds of lines there are, memory is bounded, and so is what is written.
func TestManyKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLog(t)
		const many = 10_000
		for i := range many {
			l.Warn("listener failed", "listener", fmt.Sprint(i))
		}
		if n := len(l.sampler.kinds); n > defaults.kinds+1 {
			t.Errorf("%d kinds are remembered", n)
		}
		if n := len(p.lines()); n > defaults.kinds+defaults.burst {
			t.Errorf("%d lines are written", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := p.accounted(t); got != many {
			t.Errorf("%d lines are accounted for, of %d", got, many)
		}
		l.Warn("listener failed", "listener", "new")
		if n := len(l.sampler.kinds); n > 2 {
			t.Errorf("%d kinds are remembered after a quiet time", n)
		}
	})
}

// Who asks for debug lines gets them all, and can change his mind.
func TestLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLog(t)
		l.Debug("before")
		l.Level.Set(slog.LevelDebug)
		for range 1000 {
			l.Debug("request")
		}
		l.Level.Set(slog.LevelError)
		l.Warn("after")
		if n := len(p.lines("request")); n != 1000 || len(p.lines()) != n {
			t.Errorf("%d lines, of which %d are wanted", len(p.lines()), n)
		}
		for _, name := range []string{"debug", "info", "warn", "error"} {
			if level, err := ParseLevel(name); err != nil || Name(level) != name {
				t.Errorf("%s is read as %v, %v", name, level, err)
			}
		}
		if _, err := ParseLevel("loud"); err == nil || !strings.Contains(err.Error(), "debug, info, warn or error") {
			t.Errorf("a level there is not: %v", err)
		}
	})
}

func TestText(t *testing.T) {
	at := time.Date(2025, 1, 2, 15, 4, 5, 6e6, time.UTC)
	var out bytes.Buffer
	h := newText(&out, slog.LevelInfo)
	log := h.WithAttrs([]slog.Attr{slog.String("component", "downstream"), slog.String("node_id", "envoy-1"), slog.String("identity", "")})
	r := slog.NewRecord(at, slog.LevelWarn, "client rejected a response", 0)
	r.Add("type", "type.googleapis.com/envoy.config.cluster.v3.Cluster", "nack", "bad\n\x1b[31mcluster", "names", []string{"a", "b"}, "count", 2, slog.Group("tls", "name", "x"))
	if err := log.Handle(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	const want = `15:04:05.006 WARN  client rejected a response  type=CDS nack="bad\n\x1b[31mcluster" names=a,b count=2 tls.name=x node_id=envoy-1` + "\n"
	if out.String() != want {
		t.Errorf("got  %swant %s", out.String(), want)
	}
}

// TestChangesAreNotAStorm: a reload that changes many keys says so of each.
func TestChangesAreNotAStorm(t *testing.T) {
	l, p := newLog(t)
	log := l.With("trigger", "SIGHUP")
	for n := range 30 {
		log.Info("configuration changed", "key", fmt.Sprintf("timers.t%d", n), "old", 1, "new", 2)
	}
	if n := len(p.lines("configuration changed")); n != 30 {
		t.Errorf("%d of 30 changed keys are in the log", n)
	}
}
