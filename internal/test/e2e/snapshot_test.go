package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// disk counts what happens to a relay's snapshot.
type disk struct {
	mu                      sync.Mutex
	written, loaded, failed int
	what                    string
}

func (d *disk) SnapshotWritten(int64, time.Duration) { d.count(func() { d.written++ }) }
func (d *disk) SnapshotLoaded(n int, _ time.Time)    { d.count(func() { d.loaded += n }) }
func (d *disk) SnapshotFailed(operation string)      { d.count(func() { d.failed++; d.what = operation }) }

func (d *disk) count(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func (d *disk) is(ok func(d *disk) bool) func() error {
	return func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !ok(d) {
			return fmt.Errorf("written %d, loaded %d, failed %d (%s)", d.written, d.loaded, d.failed, d.what)
		}
		return nil
	}
}

// start runs a relay that keeps its state in a directory, and does so fast.
func (d *disk) start(t *testing.T, upstream, dir string, sets ...string) *relayed {
	t.Helper()
	sets = append(append([]string{"cache.snapshot.dir=" + dir, "cache.snapshot.interval=10ms"}, quickBackoff...), sets...)
	return startRelayWith(t, relay.Options{Snapshot: d}, upstream, sets...)
}

// A relay that starts while the control plane is away serves what the one before it
// had; a client that comes back is told nothing until the control plane has
// spoken, and then of exactly what changed (RECON-19, RECON-20, G4).
func TestSnapshotOverARestart(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	for _, name := range []string{"a", "b", "c"} {
		w.service(name, "127.0.0.1:1")
	}
	cp := startControlPlane(t, w.Mux())
	dir := filepath.Join(t.TempDir(), "state")
	earlier := new(disk)
	r := earlier.start(t, cp.addr, dir)
	c := openDelta(t, r.addr, "c")
	c.Wildcard(cache.Cluster)
	c.Subscribe(cache.Endpoint, "a-cluster", "b-cluster")
	eventually(t, patience, func() error {
		return first(c.Has(cache.Cluster, "a-cluster", "b-cluster", "c-cluster"), c.Has(cache.Endpoint, "a-cluster", "b-cluster"))
	})
	cp.Stop()
	c.Close()
	r.Close(0)
	eventually(t, patience, earlier.is(func(d *disk) bool { return d.written > 0 && d.failed == 0 }))

	// Meanwhile the world goes on.
	w.Set(cache.Cluster, "a-cluster", edsCluster("a-cluster", 2))
	w.Set(cache.Endpoint, "a-cluster", endpoints("a-cluster", 2, "127.0.0.1:2"))
	w.Delete(cache.Cluster, "c-cluster")

	later := new(disk)
	again := later.start(t, cp.addr, dir, "timers.dne_timeout=1s", // LinearCache is silent about what it lacks
		"downstream.ready_types=[CDS]")
	eventually(t, patience, later.is(func(d *disk) bool { return d.loaded == 5 }))
	if ready, why := again.Ready(); !ready {
		t.Errorf("CDS is on disk, and the relay is not ready (ERR-14): %s", why)
	}
	c.Forget()
	c.MoveTo(again.addr)
	newcomer := openSotw(t, again.addr, "newcomer")
	newcomer.Watch(cache.Cluster, "a-cluster", "c-cluster") // from the wildcard's copy
	newcomer.Watch(cache.Endpoint, "b-cluster")
	eventually(t, patience, func() error {
		return first(newcomer.Has(cache.Cluster, "a-cluster", "c-cluster"), newcomer.Has(cache.Endpoint, "b-cluster"))
	})
	if err := c.HeardOnly(); err != nil {
		t.Errorf("with the control plane away: %v", err)
	}

	cp.Start()
	eventually(t, patience, func() error {
		return first(c.AtLeast(cache.Cluster, "a-cluster", 2), c.AtLeast(cache.Endpoint, "a-cluster", 2), c.Missing(cache.Cluster, "c-cluster"),
			newcomer.Has(cache.Cluster, "a-cluster"))
	})
	heard := c.HeardOnly("CDS +a-cluster", "CDS -c-cluster", "EDS +a-cluster")
	if heard != nil { // the endpoints may come sooner than their cluster, and are repeated for it (ORDER-4)
		heard = c.HeardOnly("CDS +a-cluster", "CDS -c-cluster", "EDS +a-cluster", "EDS +a-cluster")
	}
	if err := first(heard, c.Sound(), newcomer.Sound()); err != nil {
		t.Error(err)
	}
}

// Secrets are in no file without a key; with one they are, but cannot be read there
// (T9, T14).
func TestSecretsOnDisk(t *testing.T) {
	t.Parallel()
	const canary = "canary-private-key"
	w := newLinear(t, cache.Secret, cache.Endpoint)
	w.Set(cache.Secret, "s", raw(append([]byte{0x0a, 0x01, 's', 0x12, byte(len(canary))}, canary...)))
	w.Set(cache.Endpoint, "e", endpoints("e", 1, "127.0.0.1:1"))
	cp := startControlPlane(t, w.Mux())
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, bytes.Repeat([]byte{7}, 32), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, sets := range map[string][]string{"in clear": {}, "sealed": {"cache.snapshot.key_file=" + key}} {
		dir := filepath.Join(t.TempDir(), "state")
		d := new(disk)
		r := d.start(t, cp.addr, dir, sets...)
		c := openDelta(t, r.addr, "c")
		c.Subscribe(cache.Secret, "s")
		c.Subscribe(cache.Endpoint, "e")
		eventually(t, patience, func() error { return first(c.Has(cache.Secret, "s"), c.Has(cache.Endpoint, "e")) })
		r.Close(0)
		file, err := os.ReadFile(filepath.Join(dir, "snapshot"))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(file, []byte(canary)) {
			t.Errorf("%s: the file holds the secret", name)
		}
		want := 1
		if len(sets) > 0 {
			want = 2
		}
		d = new(disk)
		d.start(t, "127.0.0.1:1", dir, sets...)
		eventually(t, patience, d.is(func(d *disk) bool { return d.loaded == want }))
	}
}

// Whatever is wrong with the disk, clients are served, and a metric says so (R19).
func TestSnapshotCannotBeKept(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	cp := startControlPlane(t, w.Mux())
	inTheWay := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(inTheWay, []byte("not a directory"), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "state")
	if err := os.MkdirAll(damaged, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(damaged, "snapshot"), []byte("xds-relay snapshot 2\nrubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct{ dir, what string }{{filepath.Join(inTheWay, "state"), "write"}, {damaged, "load"}} {
		d := new(disk)
		r := d.start(t, cp.addr, k.dir)
		c := openDelta(t, r.addr, "c")
		c.Wildcard(cache.Cluster)
		eventually(t, patience, func() error { return c.Has(cache.Cluster, "a-cluster") })
		eventually(t, patience, d.is(func(d *disk) bool { return d.failed > 0 && d.what == k.what }))
		if len(r.log.Lines("snapshot")) == 0 {
			t.Errorf("%s: the log does not say so", k.dir)
		}
	}
}

// What cannot be used stays on disk until there is something to put in its place: a
// wrong key, found during an outage, costs nothing.
func TestSnapshotOutlivesAWrongKey(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	cp := startControlPlane(t, w.Mux())
	dir := filepath.Join(t.TempDir(), "state")
	right, wrong := filepath.Join(t.TempDir(), "key"), filepath.Join(t.TempDir(), "key")
	for i, file := range []string{right, wrong} {
		if err := os.WriteFile(file, bytes.Repeat([]byte{byte(i)}, 32), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := new(disk).start(t, cp.addr, dir, "cache.snapshot.key_file="+right)
	c := openDelta(t, r.addr, "c")
	c.Wildcard(cache.Cluster)
	eventually(t, patience, func() error { return c.Has(cache.Cluster, "a-cluster") })
	r.Close(0)
	cp.Stop()

	d := new(disk)
	r = d.start(t, cp.addr, dir, "cache.snapshot.key_file="+wrong)
	c = openDelta(t, r.addr, "c")
	c.Wildcard(cache.Cluster)
	eventually(t, patience, func() error {
		if n := len(r.Clients()); n != 1 {
			return fmt.Errorf("%d clients", n)
		}
		return nil
	})
	r.Close(0) // writes what there is
	if err := d.is(func(d *disk) bool { return d.written == 0 && d.failed == 1 && d.what == "load" })(); err != nil {
		t.Error(err)
	}
	d = new(disk)
	d.start(t, cp.addr, dir, "cache.snapshot.key_file="+right)
	eventually(t, patience, d.is(func(d *disk) bool { return d.loaded == 1 }))
}
