package peer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const short = 20 * time.Second

// A link carries what it is given both ways. Frozen, it keeps what comes; cut, it ends its
// connections; and what it swallows is gone.
func TestLink(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // an echo
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	k := StartLink(t, l.Addr().String())
	c, err := net.Dial("tcp", k.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	says := func(text string) {
		t.Helper()
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	hears := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		_ = c.SetReadDeadline(time.Now().Add(short))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Fatalf("%q comes, %v, not %q", got, err, want)
		}
	}
	silent := func() {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); n > 0 || !isTimeout(err) {
			t.Fatalf("%d bytes come, %v", n, err)
		}
	}
	says("one")
	hears("one")

	k.Freeze()
	says("two")
	silent()
	k.Thaw()
	hears("two")

	k.Lag(100*time.Millisecond, 0)
	says("three")
	silent()
	hears("three")
	k.Lag(0, 0)

	// What is swallowed, and then what is not: of what comes by, nothing tells when.
	k.Swallow(true)
	says("four")
	silent()
	k.Swallow(false)
	says("five")
	hears("five")

	k.Cut()
	_ = c.SetReadDeadline(time.Now().Add(short))
	if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("the connection is not cut: %v", err)
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// failures keeps what a test is told, and runs its own clean-up.
type failures struct {
	testing.TB
	said    []string
	cleanup []func()
}

func (f *failures) Helper()           {}
func (f *failures) Failed() bool      { return len(f.said) > 0 }
func (f *failures) Cleanup(do func()) { f.cleanup = append(f.cleanup, do) }
func (f *failures) Errorf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}
func (f *failures) Logf(string, ...any) {}

func (f *failures) end() {
	for _, do := range f.cleanup {
		do()
	}
}

// A process that ends by itself, or says what none may say, is the test's failure. One that
// the test ends is not, nor is one that may crash.
func TestProcess(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		meddle func(*Process)
		fails  int
	}{
		"ended by the test": {"exec sleep 60", func(*Process) {}, 0},
		"ended by itself":   {"exit 1", func(p *Process) { _ = p.Ended() }, 1},
		"an alarm":          {"echo panic: oh >&2; exec sleep 60", func(p *Process) { waitsFor(t, p, "oh") }, 1},
		"both":              {"echo panic: oh >&2; exit 2", func(p *Process) { _ = p.Ended() }, 2},
		"may crash":         {"echo panic: oh >&2; exit 2", func(p *Process) { p.MayCrash(); _ = p.Ended() }, 0},
	} {
		f := &failures{TB: t}
		p := Start(f, exec.Command("sh", "-c", c.script))
		c.meddle(p)
		f.end()
		if len(f.said) != c.fails {
			t.Errorf("%s: the test is told %q", name, f.said)
		}
	}
}

func waitsFor(t *testing.T, p *Process, text string) {
	Eventually(t, short, func() error {
		if !p.Output.Has(text) {
			return fmt.Errorf("it has not said %q", text)
		}
		return nil
	})
}

// An alarm is found across two writes, and what is kept is bounded.
func TestOutput(t *testing.T) {
	var o Output
	for _, part := range []string{"all is well\npan", "ic: oh\n", "goroutine 1\n"} {
		fmt.Fprint(&o, part)
	}
	if want := "panic: oh\ngoroutine 1\n"; o.Alarm() != want {
		t.Errorf("the alarm is %q, not %q", o.Alarm(), want)
	}
	if lines := o.Lines("o", "1"); len(lines) != 1 || lines[0] != "goroutine 1" {
		t.Errorf("lines with an o and a 1: %q", lines)
	}
	for range 40 {
		_, _ = o.Write(bytes.Repeat([]byte("x"), 1<<20))
	}
	if n := len(o.text); n > 2*keepOutput {
		t.Errorf("it keeps %d bytes", n)
	}
	if n := len(o.String()); n > showOutput {
		t.Errorf("it shows %d bytes", n)
	}
}
