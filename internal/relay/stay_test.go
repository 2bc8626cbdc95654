package relay

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/snapshot"
)

// TestUnclaimedGroupsAreForgotten: loaded groups to which nobody came back for two days of a sound
// control plane take no room from new groups in the next outage.
func TestUnclaimedGroupsAreForgotten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	saved := func(name string) snapshot.Group {
		r := cache.NewResource(cache.Cluster, &discovery.Resource{Name: "a", Resource: &anypb.Any{TypeUrl: string(cache.Cluster)}}, cache.Fingerprint{})
		return snapshot.Group{
			Name: []byte(name), Saved: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), // as the time in a world begins
			Lanes: []fanout.Saved{{Lane: fanout.Lane{Type: cache.Cluster, Wildcard: true}, Resources: []cache.Held{{Resource: r}}}},
		}
	}
	if _, err := snapshot.Write(dir, &snapshot.Snapshot{Groups: []snapshot.Group{saved(`id="x";`), saved(`id="y";`)}}, nil); err != nil {
		t.Fatal(err)
	}
	inWorld(t, []string{"cache.snapshot.dir=" + dir, "cache.snapshot.interval=1h", "groups.key=[id]", "groups.max=3"}, func(w *world) {
		if n := len(w.relay.groups.saved); n != 2 {
			t.Fatalf("%d groups are loaded", n)
		}
		w.open(w.dial(), "c", false)
		time.Sleep(48 * time.Hour)
		if n := len(w.relay.groups.saved); n != 0 {
			t.Errorf("%d groups are still kept", n)
		}
		w.plane.HangUp()
		w.up.Down()
		time.Sleep(time.Minute)
		d := w.open(w.dial(), "d", false)
		synctest.Wait()
		if _, err := d.over(); err != nil {
			t.Errorf("a new group is refused: %v", err)
		}
	})
}
