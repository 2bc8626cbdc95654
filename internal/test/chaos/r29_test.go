//go:build linux

package chaos

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// R29, a part of it: the control plane removes nearly everything at once, while
// clients owe ACKs, or do not read.
func TestR29_Sizes(t *testing.T) {
	r := begin(t, "R29", "real sizes: 10,000 resources removed at once: nothing lost (30,000 names and 300 groups: elsewhere)",
		"clusters that clients ask for by wildcard. Where it is said so, the first SotW and the first Delta client owe the ACK of what came last before the removal, which is the first set or a change after it, and another Delta client does not read for a second; all others do as they should. Afterwards 200 updates. The short form removes 1,000 of 1,200")
	clusters, keep, many := 1200, 200, fleetSize{clients: 8, sotw: 2, names: 2}
	if long() {
		clusters, keep, many.clients, many.sotw = 12_000, 2_000, 40, 8
	}
	delta, sotw := fleetSize{clients: 1, names: 2}, fleetSize{clients: 1, sotw: 1, names: 2}
	few := massRemoval{clusters: 100, keep: 10}
	for _, form := range []struct {
		name  string
		size  fleetSize
		owing []int
	}{
		{"a Delta client", delta, nil},
		{"a Delta client that owes an ACK", delta, []int{0}},
		{"a SotW client", sotw, nil},
		{"a SotW client that owes an ACK", sotw, []int{0}},
	} {
		for _, changed := range []bool{false, true} {
			m := few
			m.size, m.owing, m.changed = form.size, form.owing, changed
			r.part(t, m.text()+", "+form.name, m.play)
		}
	}
	m := massRemoval{clusters: clusters, keep: keep, size: many, owing: []int{0, many.sotw}, stalled: []int{many.sotw + 1}}
	r.part(t, m.text()+", many clients", m.play)
	m.changed = true
	r.part(t, m.text()+", many clients", m.play)
}

// massRemoval is a control plane that removes all but a few clusters at once.
type massRemoval struct {
	clusters, keep int
	changed        bool      // the first set has changed before
	size           fleetSize // the SotW clients come first
	owing, stalled []int     // clients
}

func (m massRemoval) text() string {
	when := "of the first set"
	if m.changed {
		when = "after a change"
	}
	return fmt.Sprintf("%d of %d %s", m.clusters-m.keep, m.clusters, when)
}

func (m massRemoval) play(t *testing.T, r *report) {
	w := world{Seed: 1, Clusters: m.clusters, Endpoints: 100, ClusterEvery: 1, MassAt: 1, Keep: m.keep}
	if m.changed {
		w.MassAt = 2
	} else {
		m.size.habit = func(n int, c *client) { c.owe(slices.Contains(m.owing, n)) }
	}
	h := newHistory(w)
	up := startUpstream(t, h)
	relay := startRelay(t, up.addr)
	r.fleet = startFleet(t, h, relay.Addr, m.size)
	pause(context.Background(), time.Second/2) // the ACKs of those that owe none have come
	late := func(on bool) {
		for _, i := range append(m.owing, m.stalled...) {
			r.fleet.ignore(r.fleet.clients[i], on)
		}
	}
	if m.changed {
		for _, i := range m.owing {
			r.fleet.clients[i].owe(true)
		}
		up.Step()
		r.fleet.Converge()
	}
	var resumes []func()
	for _, i := range m.stalled {
		_, resume := r.fleet.clients[i].stall(true)
		resumes = append(resumes, resume)
	}

	late(true)
	begun := time.Now()
	up.Step()
	r.fleet.Converge()
	r.tell("told those that owe nothing after", seconds(time.Since(begun)), "s")
	pause(context.Background(), time.Second-time.Since(begun))
	late(false)
	for _, resume := range resumes {
		resume()
	}
	for _, i := range m.owing {
		r.fleet.clients[i].owe(false)
	}
	r.fleet.Converge()
	r.tell("told all after", seconds(time.Since(begun)), "s")
	want := len(r.fleet.clients) * (m.clusters - m.keep)
	r.holds("removals heard of it", float64(r.fleet.removals.Load()), "", fmt.Sprint(want), r.fleet.removals.Load() == int64(want))
	for range 200 {
		up.Step()
	}
	r.fleet.Converge()
	r.tell("clients", float64(len(r.fleet.clients)), "")
	r.sound()
	r.connected()
}
