//go:build linux

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Process is a server that was started here.
type Process struct {
	Name string
	cmd  *exec.Cmd
	out  *tail
	done chan struct{}
	err  error // once done
}

// Start starts a program.
func Start(name, program string, args ...string) (*Process, error) {
	p := &Process{Name: name, cmd: exec.Command(program, args...), out: &tail{}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	// It ends with us, however we end.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("process: start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Pid is the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Stop ends it at once.
func (p *Process) Stop() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// readyWithin is how long a server may take to accept.
const readyWithin = 20 * time.Second

// Await waits until the process accepts at an address.
func (p *Process) Await(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-p.done:
			return fmt.Errorf("process: %s has ended: %w\n%s", p.Name, errors.Join(p.err, io.EOF), p.out)
		case <-ctx.Done():
			return fmt.Errorf("process: %s does not accept at %s: %w\n%s", p.Name, address, ctx.Err(), p.out)
		}
	}
}

// Output is the end of what the process has written.
func (p *Process) Output() string { return p.out.String() }

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const tailSize = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(b)
	if over := t.buf.Len() - tailSize; over > 0 {
		t.buf.Next(over)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}

// FreeAddress finds a free loopback address. Its port is not an ephemeral one, since
// a large fleet takes many of those.
func FreeAddress() (string, error) {
	for range 1000 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(15000+rand.IntN(15000)))
		if l, err := net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", errors.New("process: no free port from 15000 to 29999")
}

// Build builds a program of a Go module.
func Build(ctx context.Context, module, pkg, output string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-C", module, "-o", output, pkg)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("process: build %s: %w\n%s", pkg, err, text)
	}
	return nil
}
