package reload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/xds-relay/xds-relay/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// target is what is reloaded into.
type target struct {
	running *config.Config
	applied int
	fails   error
	oks     []bool
	log     strings.Builder
	files   []string // that have changed
	read    int      // how often they were read
}

func (x *target) ConfigReloaded(ok bool, _ time.Time) { x.oks = append(x.oks, ok) }

func (x *target) reloader(load func() (*config.Config, error)) *Reloader {
	return New(Options{
		Load: load, Running: func() *config.Config { return x.running },
		Apply: func(c *config.Config) error {
			if x.fails == nil {
				x.running = c
				x.applied++
			}
			return x.fails
		},
		Files: func() []string { x.read++; return x.files },
		Log: slog.New(slog.NewTextHandler(&x.log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})), Observer: x,
	})
}

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("relay.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestReload: what can change changes, what cannot is named, and what is wrong changes
// nothing; each is logged and told.
func TestReload(t *testing.T) {
	const mtls = "downstream: {tls: {cert: c, key: k, client_ca: a}}\ngroups: {key: [identity]}\n"
	for name, tt := range map[string]struct {
		from, to    string
		fails       error
		ok          bool
		says, logs  string
		stillIs, is string // what must be in the configuration in force
	}{
		"nothing":         {"", "", nil, true, "nothing has changed\n", "changed=0 need_restart=0", "", ""},
		"a change":        {"", "timers: {ack_timeout: 3s}", nil, true, "in force:\n  timers.ack_timeout: 10s -> 3s\n", "key=timers.ack_timeout old=10s new=3s", "", "ack_timeout: 3s"},
		"needs a restart": {"", "groups: {max: 3}", nil, true, "needs a restart:\n  groups.max: 1000 -> 3\n", "level=WARN msg=\"a changed key needs a restart; the old value stays in force\" trigger=test key=groups.max", "max: 1000", ""},
		"both":            {"", "groups: {max: 3}\nlog: {level: debug}", nil, true, "in force:\n  log.level: info -> debug\nneeds a restart:\n  groups.max: 1000 -> 3\n", "changed=1 need_restart=1", "max: 1000", "level: debug"},
		"broken":          {"", "timers: {ack_timeout: 3s}\nbogus: 1", nil, false, "relay.yaml:2:1: unknown field \"bogus\"\n    2 | bogus: 1\n      | ^\n", `level=ERROR msg="the configuration was not reloaded; the one before stays in force" trigger=test err="relay.yaml:2:1: unknown field`, "ack_timeout: 10s", ""},
		"cannot apply":    {"", "timers: {ack_timeout: 3s}", errors.New("a file has gone"), false, "a file has gone", `err="a file has gone"`, "ack_timeout: 10s", ""},
		"does not fit":    {mtls, "downstream: {tls: {cert: c, key: k}}", nil, false, "is valid, but not while what needs a restart (groups.key) is as it was", "needs a restart (groups.key)", "client_ca: a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			x := &target{running: parse(t, tt.from), fails: tt.fails}
			r := x.reloader(func() (*config.Config, error) { return config.Parse("relay.yaml", []byte(tt.to), nil) })
			o, err := r.Reload("test")
			said := o.String()
			if err != nil {
				said = err.Error()
			}
			if (err == nil) != tt.ok || !strings.Contains(said, tt.says) {
				t.Errorf("says %q, want %q", said, tt.says)
			}
			if fmt.Sprint(x.oks) != fmt.Sprint([]bool{true, tt.ok}) {
				t.Errorf("told %v", x.oks)
			}
			if !strings.Contains(x.log.String(), tt.logs) {
				t.Errorf("the log lacks %s:\n%s", tt.logs, x.log.String())
			}
			out, _ := x.running.YAML(false)
			if !strings.Contains(string(out), tt.stillIs) || !strings.Contains(string(out), tt.is) || !tt.ok && x.applied > 0 {
				t.Errorf("in force, after %d changes, is\n%s", x.applied, out)
			}
		})
	}
}

// TestReloadReadsFiles: files that the configuration names are read again whenever it is right, also if it is the same.
func TestReloadReadsFiles(t *testing.T) {
	x := &target{running: parse(t, ""), files: []string{"authz.rules_file"}}
	text := ""
	r := x.reloader(func() (*config.Config, error) { return config.Parse("relay.yaml", []byte(text), nil) })
	for _, step := range []struct {
		text, says string
		read       int
	}{
		{"", "read again, and in force: the file of authz.rules_file\n", 1},
		{"bogus: 1", "", 1},
		{"timers: {ack_timeout: 3s}", "in force:\n  timers.ack_timeout: 10s -> 3s\nread again, and in force: the file of authz.rules_file\n", 2},
	} {
		text = step.text
		o, err := r.Reload("test")
		if said := o.String(); x.read != step.read || err == nil && said != step.says {
			t.Errorf("%q: says %q, and has read %d times", step.text, said, x.read)
		}
	}
}

// watched is a file in a directory as Kubernetes makes it: file -> ..data/file, and ..data
// -> a directory that is replaced.
type watched struct {
	t    *testing.T
	dir  string
	path string
	n    int
}

func (w *watched) swap(text string) {
	w.t.Helper()
	w.n++
	data := filepath.Join(w.dir, fmt.Sprintf("..%d", w.n))
	for _, err := range []error{
		os.Mkdir(data, 0o700),
		os.WriteFile(filepath.Join(data, "relay.yaml"), []byte(text), 0o600),
		os.Symlink(filepath.Base(data), filepath.Join(w.dir, "..tmp")),
		os.Rename(filepath.Join(w.dir, "..tmp"), filepath.Join(w.dir, "..data")),
	} {
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestWatch: a file that is written in place, renamed over, or swapped by symlink is seen,
// by itself and without events; one that is empty or has not changed is not.
func TestWatch(t *testing.T) {
	for name, every := range map[string]time.Duration{"told": time.Hour, "looking": 5 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			w := &watched{t: t, dir: t.TempDir()}
			w.path = filepath.Join(w.dir, "relay.yaml")
			w.swap("one")
			if err := os.Symlink("..data/relay.yaml", w.path); err != nil {
				t.Fatal(err)
			}
			seen := make(chan string, 100)
			ctx, cancel := context.WithCancel(t.Context())
			var work sync.WaitGroup
			watch := &Watch{Path: w.path, Settle: 10 * time.Millisecond, Every: every, Log: slog.New(slog.DiscardHandler), Blind: every < time.Hour, ready: make(chan struct{})}
			work.Go(func() {
				watch.Run(ctx, func() {
					data, _ := os.ReadFile(w.path)
					seen <- string(data)
				})
			})
			defer work.Wait()
			defer cancel()
			<-watch.ready
			expect := func(text string) {
				t.Helper()
				select {
				case got := <-seen:
					if got != text {
						t.Errorf("%q is seen, want %q", got, text)
					}
				case <-time.After(20 * time.Second):
					t.Fatalf("%q is not seen", text)
				}
			}
			w.swap("two")
			expect("two")
			w.swap("two")
			w.swap("three")
			expect("three")
			if err := os.Remove(w.path); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(w.path, []byte("four"), 0o600); err != nil {
				t.Fatal(err)
			}
			expect("four")
			if err := os.WriteFile(w.path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(w.path+".new", []byte("five"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(w.path+".new", w.path); err != nil {
				t.Fatal(err)
			}
			expect("five")
			if err := os.WriteFile(w.path, []byte("six"), 0o600); err != nil {
				t.Fatal(err)
			}
			expect("six")
			if len(seen) > 0 {
				t.Errorf("seen once more: %q", <-seen)
			}
		})
	}
}

// TestWatchWaits: what is being written in place is read when it stays the same, once.
func TestWatchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "relay.yaml")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("one")
		ctx, cancel := context.WithCancel(t.Context())
		var calls atomic.Int64
		go (&Watch{Path: path, Settle: 3 * time.Second, Every: 10 * time.Second, Log: slog.New(slog.DiscardHandler), Blind: true}).Run(ctx, func() { calls.Add(1) })
		time.Sleep(9 * time.Second)
		for _, half := range []string{"t", "tw", "two"} { // looked at after 10 s, and 3 s later
			write(half)
			time.Sleep(3 * time.Second)
			if calls.Load() > 0 {
				t.Error("half of it was taken for all")
			}
		}
		time.Sleep(10 * time.Second)
		if calls.Load() != 1 {
			t.Errorf("it was taken in %d times, want once", calls.Load())
		}
		write("")
		time.Sleep(20 * time.Second)
		write("two")
		time.Sleep(20 * time.Second)
		if calls.Load() != 1 {
			t.Errorf("an empty file was taken in: %d", calls.Load())
		}
		cancel()
		synctest.Wait()
	})
}
