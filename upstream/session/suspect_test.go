package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestPardonForgetsTheOldest: as many types are remembered as refused as there is room for,
// and one more takes the place of the one whose next attempt has been due for longest: not of
// those convicted just now, which have not been asked for alone yet (H-39). The Hub is told that it
// is refused no more, or its names would never linger again (UP-7).
func TestPardonForgetsTheOldest(t *testing.T) {
	s, now := newSuspects(), time.Unix(1000, 0)
	typ := func(i int) cache.TypeURL { return cache.TypeURL(fmt.Sprint("strange.", i)) }
	var pardoned []cache.TypeURL
	convict := func(i int) {
		t.Helper()
		now = now.Add(time.Minute)
		for range convictAt - 1 {
			s.strikes[typ(i)]++
		}
		sl := &slot{answered: true, stream: &streamState{lanes: map[cache.TypeURL]*laneState{
			typ(i): {lane: fanout.Lane{Type: typ(i)}, askedAt: now},
		}}}
		convicted := false
		for _, e := range s.blame(sl, "unknown type", DefaultBounds.Quarantined, now) {
			if convicted = convicted || e == (Resolution{typ(i), true}); !e.Convicted {
				pardoned = append(pardoned, e.Type)
			}
		}
		if !convicted {
			t.Fatalf("%q is not convicted", typ(i))
		}
	}
	for i := range DefaultBounds.Quarantined {
		convict(i)
	}
	s.quarantined[typ(0)].notBefore = now.Add(time.Hour) // somebody still asks for it
	convict(DefaultBounds.Quarantined)
	convict(DefaultBounds.Quarantined + 1)
	if want := []cache.TypeURL{typ(1), typ(2)}; !slices.Equal(pardoned, want) {
		t.Errorf("%v are pardoned, want %v", pardoned, want)
	}
	for i := range DefaultBounds.Quarantined + 2 {
		if kept := s.quarantined[typ(i)] != nil; kept != (i != 1 && i != 2) {
			t.Errorf("%s is kept: %v", typ(i), kept)
		}
	}
}

// TestSuspectsTakeTurns: each stream asks for one suspect at a time, and first for the one that has not been
// asked for longest (H-39).
func TestSuspectsTakeTurns(t *testing.T) {
	s, now := newSuspects(), time.Unix(1000, 0)
	types := []cache.TypeURL{"strange.a", "strange.b", "strange.c"}
	for round := range 2 * len(types) {
		stream := &streamState{lanes: make(map[cache.TypeURL]*laneState), awake: newAwake()}
		stream.awake.held = true
		for _, typ := range types {
			stream.lanes[typ] = &laneState{lane: fanout.Lane{Type: typ}, held: true}
		}
		for range 2 { // the second time one is being asked for
			s.survivors(&slot{stream: stream}, now)
			now = now.Add(time.Second)
		}
		for i, typ := range types {
			if free := !stream.lanes[typ].held; free != (i == round%len(types)) {
				t.Errorf("stream %d asks for %s: %v", round, typ, free)
			}
		}
	}
}

// TestSuspicionEndsWithInterest: what is held against a type goes when nobody wants it any more; a conviction stays.
func TestSuspicionEndsWithInterest(t *testing.T) {
	now := time.Unix(1000, 0)
	c, _, _ := twoEntries(t, now) // a client wants a cluster
	for _, typ := range []cache.TypeURL{cache.Cluster, "nobody's"} {
		c.suspects.strikes[typ] = 1
	}
	c.suspects.quarantined["convicted"] = &quarantine{}
	c.place(now)
	if !c.suspects.suspected(cache.Cluster) {
		t.Error("nothing is held any more against a type that is wanted")
	}
	if c.suspects.suspected("nobody's") {
		t.Error("something is held against a type that nobody wants")
	}
	if c.suspects.quarantined["convicted"] == nil {
		t.Error("the convicted one is free")
	}
}
