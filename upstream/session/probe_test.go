package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// onSecond is a Core that uses the second of its entries, since the first, which answered
// once, has failed; and its stream there.
func onSecond(t *testing.T, now time.Time) (*Core, *fanout.Hub, StreamID) {
	t.Helper()
	c, hub, open := twoEntries(t, now)
	c.Ended(open.ID, End{Message: "refused"}, now)
	opened := tickAll(c, hub, now)
	for _, o := range opened {
		if o.Role == Main && o.Entry == 1 {
			c.Opened(o.ID, now)
			return c, hub, o.ID
		}
	}
	t.Fatalf("opens %v, want the second entry's stream", opened)
	return nil, nil, 0
}

// probing lets time pass until a probe is opened, and says what it asks for.
func probing(t *testing.T, c *Core, hub *fanout.Hub, now *time.Time) (id StreamID, names []string) {
	t.Helper()
	for range 100 {
		for _, o := range tickAll(c, hub, *now) {
			c.Opened(o.ID, *now)
			if o.Role == Probe {
				id = o.ID
			}
		}
		if req, ok := c.Next(id, *now).(*discovery.DeltaDiscoveryRequest); ok {
			return id, req.GetResourceNamesSubscribe()
		}
		*now = now.Add(time.Second)
	}
	t.Fatal("there is no probe")
	return 0, nil
}

// TestProbesAskForEveryName: what a control plane can answer a probe with may be any of the
// names that are wanted. So each probe asks for others, however many there are, and
// however many types (UP-14).
func TestProbesAskForEveryName(t *testing.T) {
	for _, test := range []struct{ names, types, rounds int }{{100, 1, 2}, {148, 1, 2}, {298, 1, 3}, {399, 4, 4}} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			now := time.Unix(1000, 0)
			c, hub, _ := onSecond(t, now)
			types := []cache.TypeURL{cache.Cluster, cache.Endpoint, cache.Listener, cache.Route}[:test.types]
			for _, typ := range types {
				var names []string
				for i := range test.names {
					names = append(names, fmt.Sprintf("n%04d", i))
				}
				hub.Subscribe(typ, fanout.NewSubscriber(func() {})).Delta(names, nil, now)
			}
			c.Interest(now)
			asked := make(map[string]int)
			for range test.rounds * test.types {
				id, names := probing(t, c, hub, &now)
				if len(names) != DefaultBounds.Probed {
					t.Errorf("a probe asks for %d names, want %d", len(names), DefaultBounds.Probed)
				}
				for _, name := range names {
					asked[name]++
				}
				c.Ended(id, End{Message: "refused"}, now)
			}
			for i := range test.names {
				if name := fmt.Sprintf("n%04d", i); asked[name] < test.types {
					t.Fatalf("%s was asked for by %d of the probes, want one of each of %d types", name, asked[name], test.types)
				}
			}
		})
	}
}

// TestAReturnBeginsWithoutBackOff: a control plane that is returned to has answered. If it
// fails then, it is waited for as after a first failure, however often it had failed before
// (ERR-1, UP-14).
func TestAReturnBeginsWithoutBackOff(t *testing.T) {
	now := time.Unix(1000, 0)
	c, hub, _ := onSecond(t, now)
	for range 8 {
		id, _ := probing(t, c, hub, &now)
		c.Ended(id, End{Message: "refused"}, now)
	}
	id, _ := probing(t, c, hub, &now)
	d := Decode(&discovery.DeltaDiscoveryResponse{TypeUrl: string(cache.Cluster), Nonce: "n", Resources: []*discovery.Resource{
		{Name: "a", Version: "1", Resource: &anypb.Any{TypeUrl: string(cache.Cluster)}},
	}}, cache.Fingerprint{})
	c.Receive(id, d, now)
	var returned StreamID
	for i := 0; i < 60 && returned == 0; i++ {
		now = now.Add(time.Second)
		open, _ := c.Tick(now)
		for _, e := range c.Effects() {
			if e, ok := e.(CheckDue); ok {
				c.Checked(e.Stream, Check{Begun: now, Result: There}, now)
			}
			e.Apply(hub)
		}
		for _, o := range open {
			if o.Role == Main && o.Entry == 0 {
				returned = o.ID
			}
		}
	}
	if returned == 0 {
		t.Fatal("the first entry is not returned to")
	}
	c.Ended(returned, End{Message: "refused"}, now)
	if wait := c.entries[0].notBefore.Sub(now); wait != time.Second {
		t.Errorf("it is tried again %v after it failed, want 1s", wait)
	}
}

// TestProbesAskForWhatIsLikelyToBeAnswered: types that the probed entry has never answered take no turns
// among those of which it may have something, as long as there are such; neither do types in quarantine
// (UP-14, UP-21).
func TestProbesAskForWhatIsLikelyToBeAnswered(t *testing.T) {
	now := time.Unix(1000, 0)
	c, hub, _ := onSecond(t, now)
	e := &c.entries[0]
	c.config.Answers = NewAnswers()
	c.config.Answers.Add(e.Name, "known")
	c.config.Answers.Add(e.Name, "bad")
	c.suspects.quarantined["bad"] = &quarantine{}
	want := func(types ...cache.TypeURL) {
		t.Helper()
		if got := c.probeable(e); len(got) != len(types) || !slices.EqualFunc(got, types, func(l fanout.Lane, typ cache.TypeURL) bool { return l.Type == typ }) {
			t.Errorf("a probe may ask for %v, want %q", got, types)
		}
	}
	for _, typ := range []cache.TypeURL{cache.Cluster, "bad", "invented", "known"} {
		hub.Subscribe(typ, fanout.NewSubscriber(func() {})).Delta([]string{"a"}, nil, now)
	}
	want(cache.Cluster, "known")
	c.config.Types = []cache.TypeURL{"invented", "bad"}
	want("bad", "invented")
}
