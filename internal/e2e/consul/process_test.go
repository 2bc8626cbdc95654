package consul

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// process is a program that this test has started. It dies with the test, however
// the test dies.
type process struct {
	cmd    *exec.Cmd
	ending atomic.Bool   // it is to end
	ended  chan struct{} // closed after Wait
	err    error         // of Wait
	output *output
}

func start(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, ended: make(chan struct{}), output: &output{}}
	cmd.Stdout, cmd.Stderr = p.output, p.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", filepath.Base(cmd.Path), err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		if !p.ending.Load() && p.gone() {
			t.Errorf("%s has ended by itself: %v\n%s", filepath.Base(cmd.Path), p.err, p.output)
		}
		p.kill()
		for _, alarm := range []string{"DATA RACE", "panic:", "fatal error:"} {
			if strings.Contains(p.output.String(), alarm) {
				t.Errorf("%s said:\n%s", filepath.Base(cmd.Path), p.output)
			}
		}
	})
	return p
}

func (p *process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill ends it as a crash would, and waits until it is gone.
func (p *process) kill() {
	p.ending.Store(true)
	if !p.gone() {
		_ = syscall.Kill(p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended just now
	}
	<-p.ended
}

// output is the end of what a process has said.
type output struct {
	mu   sync.Mutex
	last []byte
}

const keepOutput = 256 << 10

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = append(o.last, b...)
	if len(o.last) > 2*keepOutput {
		o.last = append([]byte(nil), o.last[len(o.last)-keepOutput:]...)
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.last)
}

// reserved are the ports that some test has been given.
var reserved sync.Map

// port finds a TCP and UDP port that nobody has, outside the range from which the
// system gives ports to whoever dials.
func port(t testing.TB) int {
	t.Helper()
	for range 1000 {
		n := 15000 + rand.IntN(15000)
		if _, given := reserved.LoadOrStore(n, true); given {
			continue
		}
		if l, err := net.Listen("tcp", loopback(n)); err == nil {
			l.Close()
			return n
		}
	}
	t.Fatal("no free port")
	return 0
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func portOf(t testing.TB, addr string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// patience is how long anything may take that has no limit of its own.
const patience = 90 * time.Second

// eventually waits until missing returns nil, and tells how long that took.
func eventually(t testing.TB, missing func() error) time.Duration {
	t.Helper()
	return within(t, patience, missing)
}

// within is eventually for what may take another time.
func within(t testing.TB, patience time.Duration, missing func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	for {
		look := time.Now()
		err := missing()
		if err == nil {
			return time.Since(begin)
		}
		if time.Since(begin) > patience {
			t.Fatalf("after %v: %v", patience, err)
		}
		pause(context.Background(), max(20*time.Millisecond, 2*time.Since(look)))
	}
}

// pause lets time pass that the scenario itself needs; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// run runs a program to its end, and returns what it wrote to standard output.
func run(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return out, errors.Join(err, ctx.Err())
}
