package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
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
			for _, both := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} { // two of a kind may arrive as one
				if err := s.cmd.Process.Signal(both); err != nil {
					t.Fatal(err)
				}
			}
			shuts, one := false, false
			for !(shuts && one) && s.log.Scan() {
				shuts = shuts || strings.Contains(s.log.Text(), "shutting down")
				one = one || strings.Contains(s.log.Text(), "the two count as one")
			}
			if code, body := s.get(t, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "shutting down") {
				t.Errorf("/readyz while draining: %d %q", code, body)
			}
			if setting == "downstream.drain_delay=1h" { // nobody has been told to stay away yet
				if _, err := subscribe(t, s.address, insecure.NewCredentials()); err != nil {
					t.Errorf("a client was refused before the delay was over: %v", err)
				}
			}
			second := map[string]syscall.Signal{"downstream.drain=1h": syscall.SIGINT, "downstream.drain_delay=1h": syscall.SIGTERM}[setting]
			impatient(t, s.cmd.Process, second)
			said := false
			for s.log.Scan() {
				var line struct {
					Msg   string
					After int64 `json:"dur_ms"`
				}
				if json.Unmarshal(s.log.Bytes(), &line) != nil || !strings.HasPrefix(line.Msg, "second signal: ending at once") {
					continue
				}
				said = true
				if line.After < 1000 {
					t.Errorf("a signal %d ms after the first cut the drain short", line.After)
				}
			}
			_ = s.cmd.Wait() // the exit code tells
			if code := s.cmd.ProcessState.ExitCode(); code != 128+int(second) || !said {
				t.Errorf("it ended with %d, and the log says so: %v; want %d, as serve --help has it", code, said, 128+int(second))
			}
		})
	}
	help, err := program(t, "serve", "--help").Output()
	if err != nil || !strings.Contains(strings.Join(strings.Fields(string(help)), " "), "with 130 (SIGINT) or 143 (SIGTERM) if a second one cut that short") {
		t.Errorf("serve --help, %v:\n%s", err, help)
	}
}

// impatient sends a process a signal again and again, until the test is over.
func impatient(t *testing.T, p *os.Process, signal syscall.Signal) {
	tick, done, ended := time.NewTicker(50*time.Millisecond), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-tick.C:
				_ = p.Signal(signal) // it may have ended
			case <-done:
				return
			}
		}
	}()
	t.Cleanup(func() {
		tick.Stop()
		close(done)
		<-ended
	})
}

// TestCtrlCWithoutClients: nobody waits for a relay that has no clients, unless it may
// have some soon: what a load balancer sends to it in the delay, it serves.
func TestCtrlCWithoutClients(t *testing.T) {
	for _, tt := range []struct {
		signal syscall.Signal
		client bool
		waits  bool
	}{
		{syscall.SIGINT, false, false},
		{syscall.SIGINT, true, true},
		{syscall.SIGTERM, false, true},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			upstream := serveClusters(t, insecure.NewCredentials())
			s := serveProgram(t, "--upstream", upstream, "--set", "downstream.drain_delay=1h")
			if tt.client {
				if _, err := subscribe(t, s.address, insecure.NewCredentials()); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.cmd.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			if !tt.waits {
				for s.log.Scan() {
				}
				if err := s.cmd.Wait(); err != nil {
					t.Errorf("it ended with %v, want 0", err)
				}
				return
			}
			for s.log.Scan() && !strings.Contains(s.log.Text(), `"drain_delay":"1h0m0s"`) {
			}
			if _, err := subscribe(t, s.address, insecure.NewCredentials()); err != nil {
				t.Errorf("a client that comes in the delay: %v", err)
			}
		})
	}
}

// TestPortsCloseBeforeClientsAreSentAway: when the first client is told to go, neither
// the port nor the Unix socket answers any more, so that a TCP probe is red and nobody
// comes back here; those that are not told yet stay. Who has connected and never said
// anything holds nothing up.
func TestPortsCloseBeforeClientsAreSentAway(t *testing.T) {
	upstream := serveClusters(t, insecure.NewCredentials())
	socket := filepath.Join(t.TempDir(), "xds.sock")
	s := serveProgram(t, "--upstream", upstream, "--listen", "unix://"+socket, "--set", "downstream.drain=1h")
	for s.log.Scan() && !strings.Contains(s.log.Text(), socket) {
	}
	silent, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ended := make(chan error, 2)
	for range 2 { // the second is sent away after half an hour
		stream, _, err := openStream(t, s.address, insecure.NewCredentials())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := stream.Recv()
			ended <- err
		}()
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; status.Code(err) != codes.Unavailable {
		t.Errorf("the first client was told %v", err)
	}
	for _, to := range [][2]string{{"tcp", s.address}, {"unix", socket}} {
		if c, err := net.Dial(to[0], to[1]); err == nil {
			c.Close()
			t.Errorf("%s still answers", to[1])
		}
	}
	if _, err := os.Stat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket: %v, want: it is gone", err)
	}
	_ = silent.SetReadDeadline(time.Now().Add(20 * time.Second))                       // only a test that fails waits for it
	if _, err := io.Copy(io.Discard, silent); errors.Is(err, os.ErrDeadlineExceeded) { // gRPC's settings may come first
		t.Error("who has said nothing is still connected")
	}
	_, body := s.get(t, "/clients")
	for late := time.Now().Add(20 * time.Second); strings.Contains(body, `"total": 2`) && time.Now().Before(late); {
		_, body = s.get(t, "/clients") // the first client may hear of its end before it is off the list
	}
	if !strings.Contains(body, `"total": 1`) {
		t.Errorf("not one client is left: %s", body)
	}
	if code, body := s.get(t, "/readyz?verbose"); code != http.StatusServiceUnavailable || !strings.Contains(body, "[-]not_draining failed: shutting down") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	if code, _ := s.get(t, "/livez"); code != http.StatusOK {
		t.Errorf("/livez: %d: nothing is wrong with a relay that drains", code)
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
