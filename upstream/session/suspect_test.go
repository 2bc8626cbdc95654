package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestPardonForgetsTheOldest: as many types are remembered as refused as there is room for,
// and one more takes the place of the one whose next attempt has been due for longest: not of
// those convicted just now, which have not been asked for alone yet (H-39).
func TestPardonForgetsTheOldest(t *testing.T) {
	s, now := newSuspects(DefaultBounds.Quarantined), time.Unix(1000, 0)
	typ := func(i int) cache.TypeURL { return cache.TypeURL(fmt.Sprint("strange.", i)) }
	convict := func(i int) {
		t.Helper()
		now = now.Add(time.Minute)
		for range convictAt - 1 {
			s.strikes[typ(i)]++
		}
		sl := &slot{answered: true, stream: &streamState{lanes: map[cache.TypeURL]*laneState{
			typ(i): {lane: fanout.Lane{Type: typ(i)}, askedAt: now},
		}}}
		if got, ok := s.blame(sl, "unknown type", Backoff{}, now); !ok || got != typ(i) {
			t.Fatalf("convicted %q, want %q", got, typ(i))
		}
	}
	for i := range DefaultBounds.Quarantined {
		convict(i)
	}
	s.quarantined[typ(0)].notBefore = now.Add(time.Hour) // somebody still asks for it
	convict(DefaultBounds.Quarantined)
	convict(DefaultBounds.Quarantined + 1)
	for i := range DefaultBounds.Quarantined + 2 {
		if kept := s.quarantined[typ(i)] != nil; kept != (i != 1 && i != 2) {
			t.Errorf("%s is kept: %v", typ(i), kept)
		}
	}
}
