package main

import (
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/credentials/insecure"
)

// TestSecondSignalEndsAtOnce: an operator who does not want to wait, be it for load
// balancers to notice or for clients to leave, need not reach for SIGKILL. Meanwhile
// the relay says that it is not ready.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	upstream := serveClusters(t, insecure.NewCredentials())
	for _, setting := range []string{"downstream.drain=1h", "downstream.drain_delay=1h"} {
		t.Run(setting, func(t *testing.T) {
			s := serveProgram(t, "--upstream", upstream, "--set", setting)
			for range 2 { // while draining, the first is sent away at once, the second after half an hour
				if _, err := subscribe(t, s.address, insecure.NewCredentials()); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			for s.log.Scan() && !strings.Contains(s.log.Text(), "shutting down") {
			}
			if code, body := s.get(t, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "shutting down") {
				t.Errorf("/readyz while draining: %d %q", code, body)
			}
			if setting == "downstream.drain_delay=1h" { // nobody has been told to stay away yet
				if _, err := subscribe(t, s.address, insecure.NewCredentials()); err != nil {
					t.Errorf("a client was refused before the delay was over: %v", err)
				}
			}
			if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			for s.log.Scan() {
			}
			err := s.cmd.Wait()
			if state, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || state.Signal() != syscall.SIGINT {
				t.Errorf("it ended with %v, want: by the second signal", err)
			}
		})
	}
}

// TestManyListeners: each --listen is served, Unix sockets too, and a socket that
// a dead process left behind is no obstacle.
func TestManyListeners(t *testing.T) {
	upstream := serveClusters(t, insecure.NewCredentials())
	socket := filepath.Join(t.TempDir(), "xds.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()

	s := serveProgram(t, "--listen", "unix://"+socket, "--upstream", upstream, "--set", "downstream.drain=0s")
	for s.log.Scan() {
		var line struct{ Msg, Listener string }
		if json.Unmarshal(s.log.Bytes(), &line) == nil && line.Msg == "serving" && line.Listener == socket {
			break
		}
	}
	for _, address := range []string{s.address, "unix://" + socket} {
		if resp, err := subscribe(t, address, insecure.NewCredentials()); err != nil || len(resp.GetResources()) != 1 {
			t.Errorf("%s: got %v, %v; want the cluster", address, resp, err)
		}
	}
	s.stop(t)
}
