//go:build linux

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/snapshot"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// serveApart starts a relay in a process of its own, which can be killed.
func serveApart(t *testing.T, upstream string, sets ...string) *peer.Relay {
	t.Helper()
	return serveBy(t, "", upstream, sets...)
}

// serveBy is serveApart with a binary that need not be of this checkout.
func serveBy(t *testing.T, program, upstream string, sets ...string) *peer.Relay {
	t.Helper()
	addr, admin := loopback.Reserve(t), loopback.Reserve(t)
	args := []string{"--upstream", upstream, "--listen", addr, "--admin", admin}
	r := peer.NewRelay(t, addr, admin, args, slices.Concat([]string{"log.format=text", "instance=e2e"}, quickBackoff, sets)...)
	r.Program = program
	r.Start()
	return r
}

// logs complains until a relay has logged a text.
func logs(r *peer.Relay, text string) error {
	if !r.Output.Has(text) {
		return fmt.Errorf("the log does not say %q", text)
	}
	return nil
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
	eventually(t, patience, func() error { return logs(r, "no snapshot to load") })
	c := openDelta(t, r.Addr, "c")
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
		r.Kill()
		r.Start()
		if err := first(logs(r, loaded), logs(r, ", which no client wanted any more")); err != nil {
			t.Fatal(err)
		}
	}

	// Meanwhile the world goes on.
	w.Set(cache.Cluster, "a-cluster", edsCluster("a-cluster", 2))
	w.Delete(cache.Cluster, "c-cluster")

	one := openDelta(t, r.Addr, "one")
	one.Wildcard(cache.Cluster)
	one.Subscribe(cache.Endpoint, "a-cluster")
	other := openSotw(t, r.Addr, "other")
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
