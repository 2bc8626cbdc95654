//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/snapshot"
)

// served is a relay in a process of its own, which can be killed.
type served struct {
	addr string
	path string
	args []string
	cmd  *exec.Cmd
	log  *lockedBuffer
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) has(text string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !strings.Contains(b.buf.String(), text) {
		return fmt.Errorf("the log does not say %q", text)
	}
	return nil
}

func serveApart(t *testing.T, upstream string, sets ...string) *served {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	s := &served{addr: addr, path: filepath.Join(t.TempDir(), "xds-relay"), args: []string{"serve", "--upstream", upstream, "--listen", addr, "--admin", "127.0.0.1:0"}}
	for _, set := range append(append([]string{"log.format=text", "instance=e2e"}, quickBackoff...), sets...) {
		s.args = append(s.args, "--set", set)
	}
	if text, err := exec.Command("go", "build", "-o", s.path, "../../cmd/xds-relay").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	t.Cleanup(func() { s.kill() })
	s.start(t)
	return s
}

func (s *served) start(t *testing.T) {
	t.Helper()
	s.log = &lockedBuffer{}
	s.cmd = exec.Command(s.path, s.args...)
	s.cmd.Stderr, s.cmd.SysProcAttr = s.log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error { return s.log.has("listener=" + s.addr) })
}

// kill ends it as kill -9 does.
func (s *served) kill() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill() // it may be gone
		_ = s.cmd.Wait()         // it says that it was killed
	}
}

// onDisk are the resources in a directory, those that are wanted and all others.
func onDisk(dir string) (wanted, all int, err error) {
	s, err := snapshot.Read(dir, nil, cache.Fingerprint{})
	if err != nil {
		return 0, 0, err
	}
	for _, g := range s.Groups {
		for _, l := range g.Lanes {
			if all += len(l.Resources); !g.Unwanted {
				wanted += len(l.Resources)
			}
		}
	}
	return wanted, all, nil
}

// The clients leave, and what they had is given up. Then the relay is killed, with the control plane away,
// and again, and serves what it had, old as it is. It subscribes to no more than what is asked for
// (RECON-19, G8, G9).
func TestKilledAfterTheLastClient(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	for _, name := range []string{"a", "b", "c"} {
		w.service(name, "127.0.0.1:1")
	}
	cp := startControlPlane(t, w.Mux())
	dir := filepath.Join(t.TempDir(), "state")
	r := serveApart(t, cp.addr, "cache.snapshot.dir="+dir, "cache.snapshot.interval=20ms", "timers.name_linger=200ms", "timers.group_linger=400ms", "timers.dne_timeout=1s")
	eventually(t, patience, func() error { return r.log.has("no snapshot to load") })
	c := openDelta(t, r.addr, "c")
	c.Wildcard(cache.Cluster)
	c.Subscribe(cache.Endpoint, "a-cluster", "b-cluster")
	eventually(t, patience, func() error {
		return first(c.Has(cache.Cluster, "a-cluster", "b-cluster", "c-cluster"), c.Has(cache.Endpoint, "a-cluster", "b-cluster"))
	})
	c.Close()
	eventually(t, patience, func() error {
		wanted, all, err := onDisk(dir)
		if err == nil && (wanted > 0 || all != 5) {
			err = fmt.Errorf("%d resources are on disk, of which %d are wanted; want 5 and 0", all, wanted)
		}
		return err
	})
	cp.Stop()
	const loaded = "snapshot loaded: 5 resources of 2 types as of "
	for range 2 { // nobody came back in between
		r.kill()
		r.start(t)
		if err := first(r.log.has(loaded), r.log.has(", which no client wanted any more")); err != nil {
			t.Fatal(err)
		}
	}

	// Meanwhile the world goes on.
	w.Set(cache.Cluster, "a-cluster", edsCluster("a-cluster", 2))
	w.Delete(cache.Cluster, "c-cluster")

	one := openDelta(t, r.addr, "one")
	one.Wildcard(cache.Cluster)
	one.Subscribe(cache.Endpoint, "a-cluster")
	other := openSotw(t, r.addr, "other")
	other.Watch(cache.Endpoint, "a-cluster")
	eventually(t, patience, func() error {
		return first(one.Has(cache.Cluster, "a-cluster", "b-cluster", "c-cluster"), one.Has(cache.Endpoint, "a-cluster"), other.Has(cache.Endpoint, "a-cluster"))
	})
	before := cp.Opened()
	cp.Start()
	eventually(t, patience, func() error {
		return first(one.AtLeast(cache.Cluster, "a-cluster", 2), one.Missing(cache.Cluster, "c-cluster"), cp.subscribes(cache.Endpoint, "a-cluster"))
	})
	if err := first(one.Sound(), other.Sound(), one.NeverMissing(cache.Endpoint, "a-cluster")); err != nil {
		t.Error(err)
	}
	cp.see(func(streams []*upstreamStream) {
		for _, s := range streams[before:] {
			if s.subscribed[cache.Endpoint]["b-cluster"] > 0 {
				t.Error("the relay asks for what nobody wants")
			}
		}
	})
}
