package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSystemd: systemd hears when the relay listens, a sign of life as often as it wants one, how
// many clients there are, and when the relay ends.
func TestSystemd(t *testing.T) {
	for _, socket := range []string{filepath.Join(t.TempDir(), "notify"), "@xds-relay-" + filepath.Base(t.TempDir())} {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: socket})
		if err != nil {
			t.Skip("no such sockets here: ", err)
		}
		defer l.Close()
		hears := func(what string) {
			t.Helper()
			b := make([]byte, 4096)
			for _ = l.SetReadDeadline(time.Now().Add(20 * time.Second)); ; {
				n, err := l.Read(b)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if strings.Contains(string(b[:n]), what) {
					return
				}
			}
		}
		s := serveWith(t, func(s *served) {
			s.cmd.Env = append(s.cmd.Env, "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=300000")
		}, "--upstream", "127.0.0.1:1")
		hears("READY=1\nSTATUS=0 clients; ready")
		hears("WATCHDOG=1")
		hears("WATCHDOG=1")
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			s.stop(t)
		}()
		hears("STOPPING=1")
		<-stopped
	}
}

// TestSystemdOfAnother: a watchdog that is set for another process is none.
func TestSystemdOfAnother(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/none")
	t.Setenv("WATCHDOG_USEC", "30000000")
	if s := newSupervisor(nil); s.every != 10*time.Second {
		t.Errorf("a sign of life every %v", s.every)
	}
	t.Setenv("WATCHDOG_PID", "1")
	if s := newSupervisor(nil); s.every != 0 {
		t.Errorf("a sign of life every %v for another process", s.every)
	}
}
