//go:build linux

package process

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCPUTime: the clock is the one that getrusage reads, which knows only this process.
func TestCPUTime(t *testing.T) {
	used := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for range 3 {
		low := used()
		got, err := cpuTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		// Rusage may be a tick behind.
		if high, tick := used(), 10*time.Millisecond; got < low-tick || got > high+tick {
			t.Errorf("%v is not between %v and %v", got, low, high)
		}
		for sum := 0; sum < 1e8; sum++ {
			_ = sum
		}
	}
}

func TestReadUsageOfThisProcess(t *testing.T) {
	before, err := ReadUsage(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	room := make([]byte, 64<<20)
	for i := range room {
		room[i] = byte(i)
	}
	after, err := ReadUsage(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if grown := after.RSS - before.RSS; grown < 32<<20 {
		t.Errorf("64 MiB were touched, and RSS has grown by %d bytes", grown)
	}
	runtime.KeepAlive(room)
	if after.Peak < after.RSS || before.FDs < 3 {
		t.Errorf("peak %d, rss %d, %d files", after.Peak, after.RSS, before.FDs)
	}
	if _, err := ReadUsage(1 << 30); err == nil {
		t.Error("a process that there is not has been read")
	}
}

func TestScrape(t *testing.T) {
	text := `# HELP go_x a thing
# TYPE go_x gauge
go_x 1.5e+06
labelled{type="CDS",why="a } b"} 2
labelled{type="EDS"} 3 1700000000
broken x
`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			w.WriteHeader(http.StatusTeapot)
		}
		fmt.Fprint(w, text)
	}))
	defer s.Close()
	m, err := Scrape(s.URL + "/metrics")
	if err != nil || m["go_x"] != 1.5e6 || m["labelled"] != 5 || len(m) != 2 {
		t.Errorf("got %v (%v)", m, err)
	}
	if _, err := Scrape(s.URL); err == nil || !strings.Contains(err.Error(), "418") {
		t.Errorf("a server that refuses: %v", err)
	}
}

func TestAProcessThatEndsSaysWhy(t *testing.T) {
	p, err := Start("shell", "sh", "-c", "echo out of luck; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	address, err := FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Await(t.Context(), address); err == nil || !strings.Contains(err.Error(), "out of luck") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
	if _, err := Start("nothing", "/does/not/exist"); err == nil {
		t.Error("started a program that there is not")
	}
}

func TestFreeAddress(t *testing.T) {
	address, err := FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestTail(t *testing.T) {
	var x tail
	for i := range 10000 {
		fmt.Fprintln(&x, i)
	}
	if s := x.String(); len(s) > tailSize || !strings.HasSuffix(s, "9998\n9999\n") {
		t.Errorf("kept %d bytes, the last %q", len(s), s[len(s)-20:])
	}
}
