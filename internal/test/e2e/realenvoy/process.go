package realenvoy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// LogEnv is the level at which Envoys log. If it is set, their logs are shown although
// the test passes.
const LogEnv = "ENVOY_LOG"

// Options are what an Envoy is started with beside its bootstrap.
type Options struct {
	// Name tells it from others in a test's output; empty: "envoy".
	Name string
	// LogLevel as Envoy knows it; empty: that of LogEnv, or info.
	LogLevel string
	// Concurrency is the number of worker threads; 0: one.
	Concurrency int
	// Args are further arguments.
	Args []string
}

// Envoy is a process of Envoy. It ends with the test, however the test ends.
type Envoy struct {
	*Admin
	t      testing.TB
	name   string
	dir    string // short, for the name of a socket may have 107 bytes
	cmd    *exec.Cmd
	ending atomic.Bool
	ended  chan struct{} // closed after Wait
	err    error         // of Wait
}

// Start starts an Envoy; without a binary the test is skipped. It does not wait for it
// to be ready: WaitReady does.
func Start(t testing.TB, b Bootstrap, o Options) *Envoy {
	t.Helper()
	binary := Need(t)
	dir, err := os.MkdirTemp("", "envoy")
	if err != nil {
		t.Fatal(err)
	}
	e := &Envoy{t: t, name: o.Name, dir: dir, ended: make(chan struct{})}
	if e.name == "" {
		e.name = "envoy"
	}
	t.Cleanup(e.finish)
	socket := filepath.Join(dir, "admin")
	e.Admin = newAdmin("unix", socket)

	full := Bootstrap{}
	for key, value := range b {
		full[key] = value
	}
	full["admin"] = Object{"address": Object{"pipe": Object{"path": socket}}}
	text, err := json.MarshalIndent(full, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "bootstrap.json")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	// Without hot restart it needs no base id, and leaves no shared memory behind. What a
	// listener still serves when it is replaced may take long on a busy machine.
	args := []string{"-c", config, "--log-path", e.logFile(), "--disable-hot-restart", "--drain-time-s", "60",
		"--log-level", or(or(o.LogLevel, os.Getenv(LogEnv)), "info"), "--concurrency", fmt.Sprint(max(1, o.Concurrency))}
	e.cmd = exec.Command(binary, append(args, o.Args...)...)
	e.cmd.SysProcAttr = ownGroup()
	if err := e.cmd.Start(); err != nil {
		close(e.ended)
		t.Fatalf("start Envoy: %v", err)
	}
	go func() {
		e.err = e.cmd.Wait()
		close(e.ended)
	}()
	return e
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// Pid is the process's id.
func (e *Envoy) Pid() int { return e.cmd.Process.Pid }

// Gone says whether the process has ended.
func (e *Envoy) Gone() bool {
	select {
	case <-e.ended:
		return true
	default:
		return false
	}
}

// Kill ends it as a crash would, and waits until it is gone.
func (e *Envoy) Kill() {
	e.ending.Store(true)
	if e.cmd != nil && e.cmd.Process != nil && !e.Gone() {
		_ = e.cmd.Process.Signal(syscall.SIGKILL) // it may have ended just now
		<-e.ended
	}
}

// finish ends it, tells the test if it had ended by itself, and shows the end of the log
// if the test failed.
func (e *Envoy) finish() {
	if e.cmd != nil && e.Gone() && !e.ending.Load() {
		e.t.Errorf("%s has ended by itself: %v", e.name, e.err)
	}
	e.Kill()
	if e.t.Failed() || os.Getenv(LogEnv) != "" {
		e.t.Logf("the end of the log of %s:\n%s", e.name, e.Log(shown))
	}
	os.RemoveAll(e.dir)
}

// shown is how much of a log a failed test shows.
const shown = 16 << 10

func (e *Envoy) logFile() string { return filepath.Join(e.dir, "log") }

// Log is the end of what it has logged, at most so many bytes.
func (e *Envoy) Log(last int) string {
	text, err := os.ReadFile(e.logFile())
	if err != nil {
		return err.Error()
	}
	if len(text) > last {
		text = text[len(text)-last:]
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return string(text)
}

// WaitReady waits until it is ready and tells how long that took; a test in which it
// takes longer than limit fails.
func (e *Envoy) WaitReady(limit time.Duration) time.Duration {
	e.t.Helper()
	begin := time.Now()
	for {
		err := e.Ready()
		if err == nil {
			return time.Since(begin)
		}
		if e.Gone() {
			e.t.Fatalf("%s has ended: %v", e.name, e.err)
		}
		if time.Since(begin) > limit {
			e.t.Fatalf("%s is not ready after %v: %v", e.name, limit, err)
		}
		<-time.After(pollEvery)
	}
}

// pollEvery is how often something is looked at.
const pollEvery = 10 * time.Millisecond

// newAdmin speaks to an admin interface. Each request has a connection of its own, so
// that nothing is left behind.
func newAdmin(network, address string) *Admin {
	var d net.Dialer
	return &Admin{http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, network, address)
		},
	}}}
}
