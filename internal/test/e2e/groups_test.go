package e2e

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/xds-relay/xds-relay/cache"
)

// A client that is its group's only one restarts while the control plane is away, and is not
// back for much longer than timers.group_linger: it has its configuration at once, secrets
// too; also from the snapshot, if the relay has restarted meanwhile. When the control plane
// is back the group ends as usual (NODE-10, G8).
func TestGroupStaysInAnOutage(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]string{"sidecar": "groups.profile=sidecar", "keyed": "groups.key=[id]"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newLinear(t, append([]cache.TypeURL{cache.Secret}, usualTypes...)...)
			w.service("a", "127.0.0.1:1")
			w.Set(cache.Secret, "certificate", &tls.Secret{Name: "certificate"})
			cp := startControlPlane(t, w.Mux())
			dir := t.TempDir()
			key := filepath.Join(dir, "key")
			random := make([]byte, 32)
			_, _ = rand.Read(random)
			if err := os.WriteFile(key, random, 0o600); err != nil {
				t.Fatal(err)
			}
			d := new(disk)
			start := func() *relayed {
				return d.start(t, cp.addr, filepath.Join(dir, "state"), set, "cache.snapshot.key_file="+key, "timers.group_linger=100ms", "timers.name_linger=50ms", "timers.unavailable_after=200ms")
			}
			r := start()
			groups := func(want int) func() error {
				return func() error { return is("groups", len(r.Groups()), want) }
			}
			serve := func() {
				t.Helper()
				c := openDelta(t, r.addr, "pod-1")
				c.Wildcard(cache.Cluster)
				c.Subscribe(cache.Endpoint, "a-cluster")
				c.Subscribe(cache.Secret, "certificate")
				eventually(t, patience, func() error {
					return first(c.Has(cache.Cluster, "a-cluster"), c.Has(cache.Endpoint, "a-cluster"), c.Has(cache.Secret, "certificate"))
				})
				c.Close()
			}
			serve()
			made := len(r.Groups())
			cp.Stop()
			for range 2 {
				throughout(t, time.Second, groups(made))
				serve()
				throughout(t, 300*time.Millisecond, groups(made))
				r.Close(0)
				r = start()
				serve()
			}
			stranger := openDelta(t, r.addr, "pod-2")
			stranger.Wildcard(cache.Cluster)
			eventually(t, patience, groups(made+1))
			stranger.Close()
			throughout(t, 300*time.Millisecond, groups(made+1))
			cp.Start()
			took := eventually(t, patience, groups(0))
			t.Logf("the groups were over %v after the control plane was back", took)
			if len(r.log.Lines("level=ERROR")) > 0 {
				t.Error("the relay logs errors")
			}
		})
	}
}
