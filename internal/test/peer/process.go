package peer

import (
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
)

// Process is a program that a test has started. It ends with the test, however that ends.
type Process struct {
	*exec.Cmd
	// Output is what it has said: on standard error, and on standard output if Cmd had
	// none.
	Output *Output

	ending, crashes atomic.Bool
	ended           chan struct{} // closed after Wait
	err             error         // of Wait
}

// Start starts a program. The test fails if it ends by itself, or says what no process may
// ever say; and if the test fails for another reason, it shows the end of what was said.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	return StartBy(t, cmd, func(start func() error) error { return start() })
}

// StartBy is Start in circumstances that do makes, such as another network.
func StartBy(t testing.TB, cmd *exec.Cmd, do func(start func() error) error) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, Output: &Output{}, ended: make(chan struct{})}
	name := filepath.Base(cmd.Path)
	cmd.Stderr = p.Output
	if cmd.Stdout == nil {
		cmd.Stdout = p.Output
	}
	cmd.SysProcAttr = diesWithTest()
	if err := do(cmd.Start); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		if p.Gone() && !p.ending.Load() {
			t.Errorf("%s has ended by itself: %v", name, p.err)
		}
		p.Kill()
		if alarm := p.Output.Alarm(); alarm != "" && !p.crashes.Load() {
			t.Errorf("%s said:\n%s", name, alarm)
		}
		p.Output.show(t, name)
	})
	return p
}

// Signal sends a signal, if the process still runs. One that may end it is no surprise.
func (p *Process) Signal(s syscall.Signal) {
	if s == syscall.SIGTERM || s == syscall.SIGKILL || s == syscall.SIGINT {
		p.ending.Store(true)
	}
	if !p.Gone() {
		_ = p.Cmd.Process.Signal(s) // it may have ended just now
	}
}

// Kill ends it as a crash would, and waits until it is gone. It may be called twice.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

// Stop asks it to end, and waits until it has.
func (p *Process) Stop() { p.end(syscall.SIGTERM) }

func (p *Process) end(s syscall.Signal) {
	p.Signal(s)
	<-p.ended
}

// MayCrash lets it end by itself, and say so.
func (p *Process) MayCrash() {
	p.ending.Store(true)
	p.crashes.Store(true)
}

// Gone reports whether it has ended.
func (p *Process) Gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Ended returns when it has ended, with what Wait says.
func (p *Process) Ended() error {
	<-p.ended
	return p.err
}
