package relay

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/snapshot"
	"github.com/xds-relay/xds-relay/internal/xdstest"
)

func TestUnclaimedGroupsAreForgotten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		saved := func(name string) snapshot.Group {
			r := cache.NewResource(cache.Cluster, &discovery.Resource{Name: "a", Resource: &anypb.Any{TypeUrl: string(cache.Cluster)}}, cache.Fingerprint{})
			return snapshot.Group{Name: []byte(name), Saved: time.Now(), Lanes: []fanout.Saved{{Lane: fanout.Lane{Type: cache.Cluster, Wildcard: true}, Resources: []cache.Held{{Resource: r}}}}}
		}
		if _, err := snapshot.Write(dir, &snapshot.Snapshot{Groups: []snapshot.Group{saved(`id="x";`), saved(`id="y";`)}}, nil); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load("", []string{"cache.snapshot.dir=" + dir, "groups.key=[id]", "groups.max=3"})
		if err != nil {
			t.Fatal(err)
		}
		w := &world{t: t, up: xdstest.NewNetwork(), down: xdstest.NewNetwork()}
		w.seen.ended = make(map[session.Reason]int)
		w.plane = xdstest.NewControlPlane(w.up.Listener())
		if w.relay, err = New(c, Options{Dial: w.up.Dial}); err != nil {
			t.Fatal(err)
		}
		w.relay.Serve(w.down.Listener())
		w.open(w.dial(), "c", false)
		time.Sleep(48 * time.Hour)
		if n := len(w.relay.groups.saved); n != 0 {
			t.Errorf("%d groups are still kept", n)
		}
		w.plane.HangUp()
		w.up.Down()
		time.Sleep(time.Minute)
		d := w.open(w.dial(), "d", false)
		time.Sleep(100 * time.Millisecond)
		if _, err := d.over(); err != nil {
			t.Errorf("a new group is refused: %v", err)
		}
		for _, conn := range w.conns {
			conn.Close()
		}
		w.clients.Wait()
		w.relay.Close(0)
		w.plane.Stop()
	})
}
