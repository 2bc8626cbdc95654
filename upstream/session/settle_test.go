package session

import (
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestASetThatWasGivenUpIsNotComplete: the wait for the rest of a wildcard's set ends when the
// wildcard is given up. Otherwise a client that has just subscribed to the wildcard again would
// get an empty set when the wait is over (RECON-16).
func TestASetThatWasGivenUpIsNotComplete(t *testing.T) {
	l := listen(t)
	l.hub = fanout.NewHub(fanout.Config{})
	l.core = NewCore(l.core.config, l.hub, func() float64 { return 0.5 })
	s := l.wants(cache.Cluster, fanout.Wildcard)
	l.pass(time.Second)
	l.hears(cache.Cluster, "a") // the set is complete 300 ms later
	l.pass(100 * time.Millisecond)
	s.Delta(nil, []string{fanout.Wildcard}, l.now)
	l.pass(100 * time.Millisecond)
	if wanted := l.hub.Lanes(); len(wanted) != 0 {
		t.Fatalf("%v is still wanted", wanted)
	}
	l.now = l.now.Add(time.Second)
	l.core.Tick(l.now)
	ends := l.core.Effects()
	l.hub.Subscribe(cache.Cluster, fanout.NewSubscriber(func() {})).Delta([]string{fanout.Wildcard}, nil, l.now)
	for _, e := range ends {
		e.Apply(l.hub)
	}
	if l.hub.Of(cache.Cluster).Synced() {
		t.Error("a set is complete that has not been asked for yet")
	}
}
