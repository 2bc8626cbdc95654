//go:build linux

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// upstream is the control plane's process as the test sees it. It can be killed and
// started again, with the world as it is then.
type upstream struct {
	t    testing.TB
	h    *history
	addr string
	in   *namespace // where it runs
	// certs is orders.Certs.
	certs string
	// followers are other control planes of the same world; they learn of each step
	// as this one does.
	followers []*upstream

	mu    sync.Mutex // held to send a command, so that steps stay in order
	p     *peer.Process
	stdin io.WriteCloser
	said  chan said
}

func startUpstream(t testing.TB, h *history) *upstream {
	t.Helper()
	return startUpstreamIn(t, h, nil, peer.Address(t))
}

// startUpstreamIn starts one at an address of a network.
func startUpstreamIn(t testing.TB, h *history, n *namespace, addr string) *upstream {
	t.Helper()
	u := &upstream{t: t, h: h, addr: addr, in: n}
	u.Start(false)
	return u
}

// Start starts it, empty if asked, and returns when it accepts.
func (u *upstream) Start(empty bool) {
	u.t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	text, err := json.Marshal(orders{World: u.h.world, Step: u.h.Step(), Listen: u.addr, Empty: empty, Certs: u.certs})
	if err != nil {
		u.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asControlPlane+"="+string(text))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		u.t.Fatal(err)
	}
	r, w := io.Pipe()
	cmd.Stdout = w
	p := peer.StartBy(u.t, cmd, u.in.do)
	u.p, u.stdin = p, stdin
	events := make(chan said, 1)
	u.said = events
	go func() {
		_ = p.Ended() // the test says so
		w.Close()
	}()
	go func() {
		defer close(events)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			var s said
			if json.Unmarshal(lines.Bytes(), &s) == nil {
				events <- s
			}
		}
	}()
	if s := u.listen(events); s.Event != "listening" {
		u.t.Fatalf("the control plane does not listen:\n%s", u.p.Output)
	}
}

func (u *upstream) listen(events chan said) said {
	select {
	case s := <-events:
		return s
	case <-time.After(patience):
		return said{}
	}
}

// Kill ends it at once.
func (u *upstream) Kill() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stdin == nil {
		return
	}
	u.p.Kill()
	u.stdin.Close()
	u.stdin = nil
}

// command sends a command, if there is somebody to send it to.
func (u *upstream) command(text string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.write(text)
}

func (u *upstream) write(text string) bool {
	if u.stdin == nil {
		return false
	}
	_, err := io.WriteString(u.stdin, text+"\n")
	return err == nil
}

// Step takes a step of the world, and tells the control plane, if it runs.
func (u *upstream) Step() {
	u.mu.Lock()
	defer u.mu.Unlock()
	step := fmt.Sprintf("%s %d", cmdStep, u.h.advance())
	u.write(step)
	for _, f := range u.followers {
		f.command(step)
	}
}

// Stats are what it has seen since it was started.
func (u *upstream) Stats() cpStats {
	u.t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.write(cmdStats) {
		u.t.Fatal("the control plane does not run: it cannot say what it has seen")
	}
	s := u.listen(u.said)
	if s.Event != "stats" {
		u.t.Fatalf("the control plane does not say what it has seen:\n%s", u.p.Output)
	}
	return s.cpStats
}

// Churn takes steps at a rate until stop is called; more than once is fine.
func (u *upstream) Churn(perSecond int) (stop func()) {
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		begin := time.Now()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			for ; n < int(time.Since(begin).Seconds()*float64(perSecond)); n++ {
				u.Step()
			}
		}
	})
	stop = sync.OnceFunc(func() {
		close(done)
		work.Wait()
	})
	u.t.Cleanup(stop)
	return stop
}

// newRelay returns a relay that does not run yet. Its back-off is capped at 1 s, as
// the targets have it.
func newRelay(t testing.TB, upstream string, sets ...string) *peer.Relay {
	t.Helper()
	return relayAt(t, peer.Address(t), peer.Address(t), upstream, sets...)
}

// newRelayIn returns a relay that is to run in a network of its own, and is reached
// through sockets in the file system, which are of no network.
func newRelayIn(t testing.TB, n *namespace, upstream string, sets ...string) *peer.Relay {
	t.Helper()
	dir, err := os.MkdirTemp("", "relay") // a short one: the name of a socket may have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := relayAt(t, filepath.Join(dir, "xds"), filepath.Join(dir, "admin"), upstream, sets...)
	r.In = n.do
	return r
}

func relayAt(t testing.TB, addr, admin, upstream string, sets ...string) *peer.Relay {
	args := []string{"--upstream", upstream, "--listen", peer.Target(addr), "--admin", peer.Target(admin), "--log-level", "warn"}
	return peer.NewRelay(t, addr, admin, args, append([]string{"upstream.backoff.initial=200ms", "upstream.backoff.max=1s"}, sets...)...)
}

func startRelay(t testing.TB, upstream string, sets ...string) *peer.Relay {
	t.Helper()
	r := newRelay(t, upstream, sets...)
	r.Start()
	return r
}

// patience is how long anything may take that has no limit of its own.
const patience = 60 * time.Second

// eventually waits until missing returns nil, and tells how long that took.
func eventually(t testing.TB, missing func() error) time.Duration {
	t.Helper()
	return peer.Eventually(t, patience, missing)
}

// pause lets time pass that the scenario itself needs; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool { return peer.Pause(ctx, d) }
