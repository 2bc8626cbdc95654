package xdstest_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/xdstest"
	"github.com/xds-relay/xds-relay/internal/test/xdstest/play"
)

// tiers are two relays, one behind the other, in a bubble: far asks near, which asks
// the control plane. Each has clients that know TTLs.
type tiers struct {
	t            *testing.T
	controlPlane *xdstest.ControlPlane
	clients      map[string]*xdstest.Client
}

// newTiers starts them, far with a mode of asking near, and two clients at each: the
// first number of its name is the tier's.
func newTiers(t *testing.T, mode string) *tiers {
	up, between, down := xdstest.NewNetwork(), xdstest.NewNetwork(), xdstest.NewNetwork()
	c := &tiers{t: t, controlPlane: xdstest.NewControlPlane(up.Listener()), clients: map[string]*xdstest.Client{}}
	var stops []func()
	for _, tier := range []struct {
		name, mode string
		from, to   *xdstest.Network
	}{{"near", "delta", up, between}, {"far", mode, between, down}} {
		relay, err := play.StartRelay([]string{"instance=" + tier.name, "upstream.mode=" + tier.mode}, tier.from.Dial, tier.to.Listener())
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, relay.Stop)
	}
	for actor, network := range map[string]*xdstest.Network{"c11": between, "c12": between, "c21": down, "c22": down} {
		client, err := xdstest.NewClient(actor, nil, network.DialFrom)
		if err != nil {
			t.Fatal(err)
		}
		c.clients[actor] = client
	}
	t.Cleanup(func() {
		for _, client := range c.clients {
			client.Close()
		}
		for _, stop := range slices.Backward(stops) {
			stop()
		}
		c.controlPlane.Stop()
	})
	return c
}

func (c *tiers) say(actor, text string) {
	c.t.Helper()
	var err error
	if actor == "up" {
		err = c.controlPlane.Say(actor, xdstest.MustParse(actor, text))
	} else {
		err = c.clients[actor].Say(xdstest.MustParse(actor, text))
	}
	if err != nil {
		c.t.Fatalf("%s > %s: %v", actor, text, err)
	}
	synctest.Wait()
}

// heard is what all clients have heard since the last call, sorted. Each ACKs it.
func (c *tiers) heard() (got []string) {
	c.t.Helper()
	for actor, client := range c.clients {
		events, err := client.Heard()
		if err != nil {
			c.t.Errorf("%s: %v", actor, err)
		}
		for _, e := range events {
			got = append(got, e.String())
			c.say(actor, "ack EDS")
		}
	}
	slices.Sort(got)
	return got
}

func (c *tiers) hear(want ...string) {
	c.t.Helper()
	if got := c.heard(); !slices.Equal(got, want) {
		c.t.Errorf("heard %q\n want %q", got, want)
	}
}

func (c *tiers) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestTTLThroughAChain: a TTL is not stretched by relays, one behind the other
// (H-26). Heartbeats go all the way, a newcomer is told what is left (TTL-5), and
// when the control plane is gone the resource ends at both tiers at its time, for
// clients that know TTLs and through the relays for those that do not.
func TestTTLThroughAChain(t *testing.T) {
	for _, mode := range []string{"delta", "sotw"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { ttlThroughAChain(t, mode) })
		})
	}
}

func ttlThroughAChain(t *testing.T, mode string) {
	c := newTiers(t, mode)
	const knows = " features=xds.config.supports-resource-ttl,xds.config.resource-in-sotw"
	c.say("c11", "open delta"+knows)
	c.say("c21", "open delta"+knows)
	c.say("c12", "open delta")
	c.say("c21", "sub EDS a b")
	c.say("c11", "sub EDS a b")
	c.say("c12", "sub EDS a b")
	c.say("up", "resp EDS nonce=1 a@7=1(10s) b@1")
	c.hear("c11 < resp EDS +a@1(10s) +b@1", "c12 < resp EDS +a@1 +b@1", "c21 < resp EDS +a@1(10s) +b@1")

	c.wait(7 * time.Second)
	c.say("up", "resp EDS nonce=2 a@7~(10s)")
	c.hear("c11 < resp EDS +a@1~(10s)", "c21 < resp EDS +a@1~(10s)")

	c.wait(4 * time.Second) // beyond the first TTL
	c.say("c22", "open sotw"+knows)
	c.say("c22", "req EDS a b")
	c.hear("c22 < resp EDS +a@1(6s) +b@1")

	// An equal body is a heartbeat, too, and is one on every hop (TTL-12).
	c.say("up", "resp EDS nonce=3 a@8=1(20s)")
	c.hear("c11 < resp EDS +a@1~(20s)", "c21 < resp EDS +a@1~(20s)", "c22 < resp EDS +a@?~(20s)")

	c.wait(5 * time.Second)
	c.say("up", `end UNAVAILABLE "killed"`)
	c.controlPlane.Stop()
	c.wait(15*time.Second - time.Nanosecond)
	c.hear() // not sooner
	c.wait(time.Nanosecond)
	// Far has a timer of its own, and is told by near at the same instant: in which
	// order is open, and so in which words.
	heard := c.heard()
	for actor, want := range map[string]string{"c11": " -a", "c12": " -a", "c21": " -a", "c22": " !a=NOT_FOUND"} {
		if !slices.ContainsFunc(heard, func(e string) bool { return strings.HasPrefix(e, actor+" < resp EDS"+want) }) {
			t.Errorf("%s has not heard%s in %q", actor, want, heard)
		}
	}
	c.wait(time.Hour)
	c.hear() // what has no TTL stays
	c.say("c12", "sub EDS b")
	c.hear("c12 < resp EDS +b@1")
}

// TestStaleEndpointsThroughAChain: each receipt of what goes stale goes all the way, and nothing else
// renews it on any hop (TTL-13).
func TestStaleEndpointsThroughAChain(t *testing.T) {
	for _, mode := range []string{"delta", "sotw"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { staleThroughAChain(t, mode) })
		})
	}
}

func staleThroughAChain(t *testing.T, mode string) {
	c := newTiers(t, mode)
	for _, actor := range []string{"c11", "c21"} {
		c.say(actor, "open delta")
		c.say(actor, "sub EDS a b")
	}
	for _, actor := range []string{"c12", "c22"} {
		c.say(actor, "open sotw")
		c.say(actor, "req EDS a b")
	}
	all := func(what string) (heard []string) {
		for _, actor := range []string{"c11", "c12", "c21", "c22"} {
			heard = append(heard, actor+" < resp EDS "+what)
		}
		return heard
	}
	c.wait(time.Second)
	c.say("up", "resp EDS nonce=1 a@1{stale} b@1")
	c.hear(all("+a@1{stale} +b@1")...)
	for _, nonce := range []string{"2", "3", "4"} {
		c.wait(20 * time.Second)
		c.say("up", "resp EDS nonce="+nonce+" a@1{stale} b@1")
		c.hear(all("+a@1{stale}")...)
	}
	c.say("up", `end UNAVAILABLE "restart"`)
	c.wait(time.Minute)
	c.say("up", "resp EDS nonce=5")
	c.hear() // the stream that came after has brought nothing
	c.say("up", "resp EDS nonce=6 a@1{stale}")
	c.hear(all("+a@1{stale}")...)
}
