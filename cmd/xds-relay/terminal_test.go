//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
)

// terminal is one that a command of the program runs on.
type terminal struct {
	t    *testing.T
	keys *os.File // what is typed goes in here, and what is shown comes out
	tty  *os.File
	was  unix.Termios

	mu    sync.Mutex
	shown strings.Builder
	reads sync.WaitGroup
}

// columns and lines are how large it is.
const columns, rows = 70, 9

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("this host has no terminals: ", err)
	}
	fd := int(keys.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, keys: keys, tty: tty, was: modeOf(t, tty)}
	term.reads.Go(func() {
		var page [4096]byte
		for {
			n, err := keys.Read(page[:])
			term.mu.Lock()
			term.shown.Write(page[:n])
			term.mu.Unlock()
			if err != nil {
				return // nobody has it open any more
			}
		}
	})
	t.Cleanup(func() {
		tty.Close()
		term.reads.Wait()
		keys.Close()
	})
	return term
}

func modeOf(t *testing.T, tty *os.File) unix.Termios {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *mode
}

// start starts a command of the program on it.
func (o *terminal) start(args ...string) *exec.Cmd {
	o.t.Helper()
	cmd := program(o.t, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.tty, o.tty, o.tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	return cmd
}

func (o *terminal) press(keys string) {
	o.t.Helper()
	if _, err := o.keys.WriteString(keys); err != nil {
		o.t.Fatal(err)
	}
}

// screen is what was shown since the screen was cleared last, and how often it was.
func (o *terminal) screen() (page string, pages int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := strings.Split(o.shown.String(), "\x1b[H\x1b[2J")
	return all[len(all)-1], len(all) - 1
}

// shows waits until the screen shows all of this, in this order.
func (o *terminal) shows(words ...string) {
	o.t.Helper()
	eventually(o.t, strings.Join(words, ", "), func() bool {
		rest, _ := o.screen()
		for _, w := range words {
			_, after, ok := strings.Cut(rest, w)
			if !ok {
				return false
			}
			rest = after
		}
		return true
	})
}

// ends waits for the end of a command, which must be a good one and leave the terminal as it was.
func (o *terminal) ends(cmd *exec.Cmd) {
	o.t.Helper()
	if err := cmd.Wait(); err != nil {
		page, _ := o.screen()
		o.t.Errorf("%q: %v: %q", cmd.Args, err, page)
	}
	if now := modeOf(o.t, o.tty); now != o.was {
		o.t.Errorf("the terminal is left as %+v, and was %+v", now, o.was)
	}
}

// fourClients are each first by another order.
func fourClients() string {
	of := func(stream uint64, node string, behind int, since time.Duration, bytes, nacks int64) downstream.Client {
		t := session.ClientType{Type: cache.Cluster, Group: "default", Nonce: "1", Sync: "unacked", Behind: behind, Since: time.Now().Add(-since)}
		return downstream.Client{Stream: stream, Node: node, Protocol: "delta", Bytes: bytes, Nacks: nacks, Types: []session.ClientType{t}}
	}
	text, _ := json.Marshal([]downstream.Client{ // it has no error
		of(1, "lagging", 1, time.Hour, 1, 1), of(2, "pending", 500, time.Second, 2, 2), of(3, "loud", 3, 3*time.Second, 1<<20, 3), of(4, "refusing", 4, 2*time.Second, 3, 40),
	})
	return `{"clients": ` + string(text) + `}`
}

// TestTopOnTerminal: keys sort the table without another look at the relay, its lines end where the terminal does, and
// q, Ctrl-C and Ctrl-D end it and leave the terminal as it was.
func TestTopOnTerminal(t *testing.T) {
	var looks atomic.Int64
	relay := httptest.NewServer(said{
		"/groups": always(`{"groups": []}`),
		"/clients": func(url.Values) (int, string) {
			looks.Add(1)
			return 200, fourClients()
		},
	})
	defer relay.Close()
	for _, end := range []string{"q", "\x03", "\x04"} {
		o := newTerminal(t)
		looks.Store(0)
		cmd := o.start("top", "--every", "1h", "--address", strings.TrimPrefix(relay.URL, "http://"))
		o.shows("by lag", "CLIENT", "lagging")
		for _, step := range []struct{ key, by, first string }{{"p", "pending", "pending"}, {"b", "bytes", "loud"}, {"n", "nacks", "refusing"}, {"l", "lag", "lagging"}, {"x", "lag", "lagging"}} {
			_, before := o.screen()
			o.press(step.key)
			eventually(t, "another page", func() bool { _, pages := o.screen(); return pages > before })
			o.shows("by "+step.by, "CLIENT", "\r\n"+step.first)
		}
		page, _ := o.screen()
		for line := range strings.SplitSeq(page, "\r\n") {
			if n := utf8.RuneCountInString(line); n > columns {
				t.Errorf("a line has %d columns: %q", n, line)
			}
		}
		if n := strings.Count(page, "\n"); n >= rows {
			t.Errorf("the page has %d lines, and would scroll", n)
		}
		o.press(end)
		o.ends(cmd)
		if n := looks.Load(); n != 1 {
			t.Errorf("the relay was asked %d times", n)
		}
	}
}

// TestTopLooksAgain: the table is live, shows what is wrong while the relay does not answer, and goes on.
func TestTopLooksAgain(t *testing.T) {
	var broken atomic.Bool
	relay := httptest.NewServer(said{
		"/groups": always(`{"groups": []}`),
		"/clients": func(url.Values) (int, string) {
			if broken.Load() {
				return 503, "in a moment"
			}
			return 200, fourClients()
		},
	})
	defer relay.Close()
	o := newTerminal(t)
	cmd := o.start("top", "--every", "100ms", "--address", strings.TrimPrefix(relay.URL, "http://"))
	o.shows("4 clients")
	broken.Store(true)
	o.shows("in a moment")
	broken.Store(false)
	o.shows("4 clients")
	o.press("q")
	o.ends(cmd)
}

// TestPsWatches: ps -w shows a new page in place of the last one, says what is wrong meanwhile, and ends with Ctrl-C.
func TestPsWatches(t *testing.T) {
	var asked atomic.Int64
	relay := httptest.NewServer(said{
		"/server_info": always(`{"version": "v", "ready": true}`),
		"/groups":      always(`{"groups": []}`),
		"/clients": func(url.Values) (int, string) {
			switch n := asked.Add(1); n {
			case 2:
				return 503, "in a moment"
			default:
				return 200, strings.Replace(fourClients(), "lagging", fmt.Sprint("look-", n), 1)
			}
		},
	})
	defer relay.Close()
	o := newTerminal(t)
	cmd := o.start("ps", "-w", "--every", "100ms", "--address", strings.TrimPrefix(relay.URL, "http://"))
	o.shows("look-4", "4 clients")
	if o.mu.Lock(); !strings.Contains(o.shown.String(), "in a moment") {
		t.Errorf("nothing is said of what was wrong: %q", o.shown.String())
	}
	o.mu.Unlock()
	if _, pages := o.screen(); pages < 3 {
		t.Errorf("there are %d pages", pages)
	}
	o.press("\x03")
	o.ends(cmd)
}
