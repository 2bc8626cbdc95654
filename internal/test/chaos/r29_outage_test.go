//go:build linux

package chaos

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// R29, another part of it: the control plane dies, then all clients leave, for much longer
// than groups and names linger, and come back knowing nothing, while the control plane is
// still dead; once to the same relay and once to one that was killed and has only its
// snapshot (NODE-10, G8).
func TestR29Outage_Sizes(t *testing.T) {
	r := begin(t, "R29Outage", "real sizes: 50,000 names kept over an outage, in 300 groups by node and in one group: nothing lost",
		"clusters by wildcard and endpoint assignments by name; a tenth of the clients speaks SotW. The control plane is killed, all clients leave, and come back with nothing in their hands after three times group_linger, with the control plane still dead; then the relay is killed, starts from its snapshot, and they come once more. At the end the control plane is back, and 200 updates follow. max_lingering_names is 10,000, the default, in the long form")
	groups, each, few := 300, 170, 10_000
	if !long() {
		groups, each, few = 20, 15, 100
	}
	byNode := blip{clients: groups, names: each, sets: []string{"groups.key=[id]"}, groups: groups}
	one := blip{clients: groups / 6, names: each * 6, sets: []string{fmt.Sprintf("cache.max_lingering_names=%d", few)}, groups: 1}
	r.part(t, fmt.Sprintf("%d groups by node, %d names", byNode.groups, byNode.all()), byNode.play)
	r.part(t, fmt.Sprintf("one group, %d names", one.all()), one.play)
}

// blip is an outage in which all clients leave.
type blip struct {
	clients, names int // names of each
	groups         int
	sets           []string
}

// lonely waits until the relay knows that no stream to the control plane is left. Until then a name
// that nobody wants may be unsubscribed and dropped (UP-7).
func lonely(t testing.TB, r *peer.Relay) {
	t.Helper()
	eventually(t, func() error {
		if n := r.Metrics()["xds_relay_upstream_connected"]; n != 0 {
			return fmt.Errorf("xds_relay_upstream_connected is %v", n)
		}
		return nil
	})
}

func (b blip) all() int { return b.clients * b.names }

func (b blip) play(t *testing.T, r *report) {
	linger := 400 * time.Millisecond
	if long() {
		linger = 5 * time.Second
	}
	h := newHistory(world{Seed: 1, Clusters: 20, Endpoints: b.all(), ClusterEvery: 20})
	up := startUpstream(t, h)
	sets := append([]string{fmt.Sprintf("timers.group_linger=%v", linger), fmt.Sprintf("timers.name_linger=%v", linger/2)}, b.sets...)
	relay := startRelay(t, up.addr, append(sets, onDisk(filepath.Join(t.TempDir(), "snapshot"))...)...)
	size := fleetSize{clients: b.clients, sotw: b.clients / 10, names: b.names}
	r.fleet = startFleet(t, h, relay.Addr, size)
	for range 50 {
		up.Step()
	}
	r.fleet.Converge()
	up.Kill()
	lonely(t, relay)
	for _, after := range []string{"all clients were away", "the relay was killed, too"} {
		r.fleet.Stop()
		pause(context.Background(), 3*linger)
		written(t, relay)
		if after != "all clients were away" {
			relay.Kill()
			relay.Start()
		} else {
			r.holds("groups that stay", relay.Metrics().Sum("xds_relay_groups"), "", fmt.Sprint(b.groups), relay.Metrics().Sum("xds_relay_groups") == float64(b.groups))
		}
		begun := time.Now()
		r.fleet = startFleet(t, h, relay.Addr, size)
		r.tell("complete, with no control plane, after "+after, seconds(time.Since(begun)), "s")
		r.sound()
		r.connected()
	}
	up.Start(false)
	for range 200 {
		up.Step()
	}
	r.tell("complete after the control plane was back", seconds(r.fleet.Converge()), "s")
	r.sound()
	r.connected()
}
