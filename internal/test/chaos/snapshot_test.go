//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// interval is the least time between two writes of the snapshot.
var interval = span(600 * time.Millisecond)

// onDisk is the configuration of a relay that keeps a snapshot.
func onDisk(dir string) []string {
	return []string{"cache.snapshot.dir=" + dir, fmt.Sprintf("cache.snapshot.interval=%v", interval)}
}

// written waits until what the relay has now is on disk, and has been for a moment.
func written(t testing.TB, r *peer.Relay) {
	t.Helper()
	before := time.Now()
	eventually(t, func() error {
		m := r.Metrics()
		at := time.UnixMicro(int64(1e6 * m["xds_relay_snapshot_timestamp_seconds"]))
		if at.IsZero() || time.Since(before) < 3*interval {
			return fmt.Errorf("the last snapshot is of %v", at)
		}
		return nil
	})
}

// R2: kill -9 of the relay, again and again; every other time while there is no
// control plane, so that it must live on what it has on disk.
func TestR2_RelayKill(t *testing.T) {
	kills := 2
	if long() {
		kills = 100
	}
	r := begin(t, "R2", "kill -9 relay 100x, 1000 clients, warm snapshot: serving again < 1 s after exec; all clients reconverged < 5 s; 0 spurious removals; resent bytes < 5 % of full state (control plane down half of those times)",
		usualLoad+"; 50 updates/s; snapshot at most every 0.6 s; every other kill comes while the control plane is dead, so that clients must find from disk what they had; resent is what a Delta client is sent although it has had it, or newer, from any relay")
	h := newHistory(usual())
	up := startUpstream(t, h)
	relay := startRelay(t, up.addr, onDisk(filepath.Join(t.TempDir(), "snapshot"))...)
	r.fleet = startFleet(t, h, relay.Addr, thousand())
	stop := up.Churn(50)

	var worstResent float64
	var serving, warm, cold durations
	var changed, unloaded int64
	for n := range kills {
		pause(context.Background(), between(interval, 3*interval))
		down := n%2 == 1
		if down {
			up.Kill()
			written(t, relay)
		}
		full, resent := r.fleet.fullState(), r.fleet.resent.Load()
		had, streams := r.fleet.holdings(), r.fleet.streams()
		r.fleet.epoch.Add(1)
		relay.Kill()
		pause(context.Background(), time.Duration(rand.Int64N(int64(interval))))
		exec := time.Now()
		serving.add(relay.Start())
		if down {
			r.fleet.reconnected(streams)
			warm.add(time.Since(exec))
			changed += int64(r.fleet.differing(had))
			up.Start(false)
			r.fleet.Converge()
		} else {
			r.fleet.reconnected(streams)
			r.fleet.Converge()
			cold.add(time.Since(exec))
		}
		worstResent = max(worstResent, 100*float64(r.fleet.resent.Load()-resent)/float64(full))
		unloaded += 1 - int64(relay.Metrics()["xds_relay_snapshot_loads_total"])
	}
	stop()
	r.fleet.Converge()

	r.none("relays that did not load the snapshot", unloaded)
	r.tell("clients", float64(len(r.fleet.clients)), "")
	r.tell("kills", float64(kills), "")
	r.tell("of them while the control plane was dead", float64(kills/2), "")
	r.tell("updates", float64(h.Step()), "")
	r.spread("start, from exec to /readyz 200", serving, 1)
	r.spread("all clients back and converged after exec, control plane up", cold, 5)
	r.spread("all clients back after exec, control plane dead", warm, 5)
	r.none("clients whose state from disk was not what they had, over all kills", changed)
	r.below("resent bytes after a kill, of the full state: worst", worstResent, 5, "%")
	r.sound()
	r.tell("client streams that ended", float64(r.fleet.disconnects.Load()), "")
}

// R4: a relay that starts without a control plane serves newcomers from disk.
func TestR4_ColdStart(t *testing.T) {
	r := begin(t, "R4", "cold start, upstream down, snapshot present: 1000 new clients get full state < 5 s", usualLoad)
	h := newHistory(usual())
	up := startUpstream(t, h)
	relay := startRelay(t, up.addr, onDisk(filepath.Join(t.TempDir(), "snapshot"))...)
	first := startFleet(t, h, relay.Addr, thousand())
	stop := up.Churn(50)
	pause(context.Background(), span(3*time.Second))
	stop()
	first.Converge()
	written(t, relay)
	first.Stop()
	relay.Kill()
	up.Kill()

	begun := time.Now()
	served := relay.Start()
	r.fleet = startFleet(t, h, relay.Addr, thousand())
	took := time.Since(begun)
	r.tell("clients", float64(len(r.fleet.clients)), "")
	r.tell("from exec to /readyz 200", seconds(served), "s")
	r.below("from exec until the last client had everything", seconds(took), 5, "s")
	r.none("streams to a control plane", int64(relay.Metrics()["xds_relay_upstream_connected"]))
	r.sound()
	r.connected()
}

// R19: the disk is full, and then read-only. Clients do not notice; operators do.
func TestR19_Disk(t *testing.T) {
	r := begin(t, "R19", "disk full, read-only dir: serving unaffected, metric + alert", usualLoad+"; 50 updates/s; the snapshot is on a tmpfs of 4 MiB that is filled, emptied, and made read-only")
	dir := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=0700"); err != nil {
		t.Skipf("a file system of one's own is needed, which takes root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	h := newHistory(usual())
	up := startUpstream(t, h)
	relay := startRelay(t, up.addr, onDisk(filepath.Join(dir, "snapshot"))...)
	r.fleet = startFleet(t, h, relay.Addr, thousand())
	stop := up.Churn(50)
	const failed = `xds_relay_snapshot_errors_total{operation="write"}`
	more := func(series string) {
		t.Helper()
		was := relay.Metrics()[series]
		eventually(t, func() error {
			if relay.Metrics()[series] <= was {
				return fmt.Errorf("%s stays at %v", series, was)
			}
			return nil
		})
	}
	// lasts is how long each trouble lasts.
	lasts := span(3 * time.Second)
	if long() {
		lasts = 20 * time.Second
	}
	var calm, full, readOnly latencies
	more("xds_relay_snapshot_writes_total")
	r.fleet.measure(lasts, &calm)
	r.none("failed writes before there is trouble", int64(relay.Metrics()[failed]))

	fill(t, filepath.Join(dir, "junk"))
	more(failed)
	begun := relay.Metrics()[failed]
	r.fleet.measure(lasts, &full)
	r.tell("failed writes while the disk was full", relay.Metrics()[failed]-begun, "")
	r.fleet.Converge()
	if err := os.Remove(filepath.Join(dir, "junk")); err != nil {
		t.Fatal(err)
	}
	more("xds_relay_snapshot_writes_total")

	eventually(t, func() error { // it is busy while the relay writes
		return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
	})
	more(failed)
	begun = relay.Metrics()[failed]
	r.fleet.measure(lasts, &readOnly)
	r.tell("failed writes while it was read-only", relay.Metrics()[failed]-begun, "")
	r.fleet.Converge()
	// What was written last must do for a start.
	stop()
	r.fleet.Converge()
	r.fleet.epoch.Add(1)
	streams := r.fleet.streams()
	relay.Kill()
	relay.Start()
	r.fleet.reconnected(streams)
	r.fleet.Converge()
	r.holds("snapshots loaded from the read-only disk", relay.Metrics()["xds_relay_snapshot_loads_total"], "", "1", relay.Metrics()["xds_relay_snapshot_loads_total"] == 1)

	r.tell("p99 from update to client before", millis(calm.at(.99)), "ms")
	r.tell("p99 while the disk was full", millis(full.at(.99)), "ms")
	r.tell("p99 while it was read-only", millis(readOnly.at(.99)), "ms")
	r.sound()
	r.holds("client disconnects", float64(r.fleet.disconnects.Load()), "", "one for each client, from the kill at the end", int(r.fleet.disconnects.Load()) == len(r.fleet.clients))
}

// fill writes a file until the disk is full.
func fill(t testing.TB, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	junk := make([]byte, 4<<10)
	for range 64 << 20 / len(junk) {
		if _, err := f.Write(junk); err != nil {
			return
		}
	}
	t.Fatal("the disk does not fill up")
}
