package session

import (
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// twoEntries is a Core with a fallback, a client that waits for a cluster, and the
// Core's first stream.
func twoEntries(t *testing.T, now time.Time) (*Core, *fanout.Hub, Open) {
	t.Helper()
	hub := fanout.NewHub(fanout.Config{Linger: 30 * time.Second})
	c := NewCore(Config{
		Entries: []Entry{{Name: "first"}, {Name: "second"}},
		Missing: 15 * time.Second, MissingExplicit: time.Minute, UnavailableAfter: 5 * time.Second,
		HealthCheck: true, SettleCap: 5 * time.Second, Failover: Failover{FailoverAfter: time.Minute, FailbackAfter: 30 * time.Second},
		Backoff: Backoff{Initial: time.Second, Max: 30 * time.Second, Factor: 1.6},
	}, hub, func() float64 { return 0.5 })
	hub.Subscribe(cache.Cluster, fanout.NewSubscriber(func() {})).Delta([]string{"a"}, nil, now)
	c.Interest(now)
	open := tickAll(c, hub, now)
	if len(open) != 1 {
		t.Fatalf("%d streams are opened, want one", len(open))
	}
	return c, hub, open[0]
}

func tickAll(c *Core, hub *fanout.Hub, now time.Time) []Open {
	open, _ := c.Tick(now)
	for _, e := range c.Effects() {
		e.Apply(hub)
	}
	return open
}

// TestMovedStreamStays: a stream that ended to make room on its connection says nothing
// against its entry: it is opened again there, and at once (UP-14, UP-1).
func TestMovedStreamStays(t *testing.T) {
	now := time.Unix(1000, 0)
	c, hub, open := twoEntries(t, now)
	c.Opened(open.ID, now)
	now = now.Add(time.Second)
	tickAll(c, hub, now)
	c.Ended(open.ID, End{Kind: EndNoRoom, Message: "moved"}, now)
	again := tickAll(c, hub, now)
	if len(again) != 1 || again[0].Entry != 0 {
		t.Errorf("opens %v, want the first entry's stream, at once", again)
	}
}

// TestHangingAttemptIsLeft: an entry that never answered is left for the next when an
// attempt to reach it takes longer than unavailableafter (UP-14).
func TestHangingAttemptIsLeft(t *testing.T) {
	now := time.Unix(1000, 0)
	c, hub, _ := twoEntries(t, now)
	tickAll(c, hub, now.Add(5*time.Second-time.Millisecond))
	if c.current != 0 {
		t.Error("it is left too early")
	}
	now = now.Add(5 * time.Second)
	if open := tickAll(c, hub, now); c.current != 1 || len(open) == 0 || open[0].Entry != 1 {
		t.Errorf("the entry is %d, opens %v, want the second", c.current, open)
	}
}

// TestReturnsThatDoNotLast: each return to a preferred entry that is over within ten minutes makes the next one
// wait for twice as long, up to half an hour; one that lasts begins from the start (UP-14).
func TestReturnsThatDoNotLast(t *testing.T) {
	now := time.Unix(1000, 0)
	config := &Config{Failover: Failover{FailbackAfter: 30 * time.Second}}
	var e entry
	comes := func(lasts, want time.Duration) {
		t.Helper()
		e.returned = now
		now = now.Add(lasts)
		e.left(config, now)
		e.back = now
		if wait := e.backAt(config).Sub(now); wait != want {
			t.Errorf("the next return comes after %v, want %v", wait, want)
		}
	}
	for _, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 30 * time.Minute, 30 * time.Minute} {
		comes(10*time.Minute-time.Second, want)
	}
	comes(10*time.Minute, 30*time.Second)
	comes(time.Second, time.Minute)
}

// TestNoRoomIsNoFailure: an entry whose connections take no more streams is not left for that, however long it lasts:
// nothing is wrong with it (UP-1, UP-14).
func TestNoRoomIsNoFailure(t *testing.T) {
	for _, heard := range []bool{false, true} {
		now := time.Unix(1000, 0)
		c, hub, open := twoEntries(t, now)
		c.heard = heard
		for range 20 {
			c.Ended(open.ID, End{Kind: EndNoRoom, Message: "no room"}, now)
			var again []Open
			for len(again) == 0 {
				now = now.Add(time.Second)
				again = tickAll(c, hub, now)
			}
			open = again[0]
		}
		if c.current != 0 {
			t.Errorf("it is left, though nothing else is wrong; it has answered before: %v", heard)
		}
	}
}
