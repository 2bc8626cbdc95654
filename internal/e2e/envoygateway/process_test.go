package envoygateway

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// process is a program that a test has started, and that ends with the test.
type process struct {
	name   string
	cmd    *exec.Cmd
	ending atomic.Bool   // it is to end
	ended  chan struct{} // closed after Wait
	err    error         // of Wait
	output *output
}

// run starts a program. What it says is kept, and shown if the test fails.
func run(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{name: filepath.Base(cmd.Path), cmd: cmd, ended: make(chan struct{}), output: &output{}}
	cmd.Stdout, cmd.Stderr = p.output, p.output
	cmd.SysProcAttr = dieWithTest()
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		if !p.ending.Load() && p.gone() {
			t.Errorf("%s has ended by itself: %v", p.name, p.err)
		}
		p.Kill()
		if t.Failed() {
			t.Logf("the end of what %s said:\n%s", p.name, p.output)
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

// Kill ends it as a crash would, and waits until it is gone.
func (p *process) Kill() { p.end(syscall.SIGKILL) }

// Stop asks it to end, and waits until it has.
func (p *process) Stop() { p.end(syscall.SIGTERM) }

func (p *process) end(s syscall.Signal) {
	p.ending.Store(true)
	if !p.gone() {
		_ = p.cmd.Process.Signal(s) // it may have ended just now
	}
	<-p.ended
}

// output is what a process has said.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Bounds of what is kept of a process that says too much, and of what is shown.
const keepOutput, showOutput = 16 << 20, 8 << 10

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text.Len() < keepOutput {
		o.text.Write(b)
	}
	return len(b), nil
}

// Lines are those that contain every one of the parts.
func (o *output) Lines(parts ...string) (found []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
lines:
	for line := range strings.Lines(o.text.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		found = append(found, strings.TrimSpace(line))
	}
	return found
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := o.text.Bytes()
	return string(text[max(0, len(text)-showOutput):])
}
