package session

import (
	"maps"
	"slices"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// TestPairsAreBounded: at most so many names are asked for again at a time, first those whose
// silence is going to count (UP-19).
func TestPairsAreBounded(t *testing.T) {
	now := time.Unix(0, 0)
	u := unanswered{on: true, due: []string{"a", "b", "c"}, learned: now}
	u.look([]string{"d", "e", "f"})
	now = now.Add(retryFirst)
	for _, want := range [][]string{{"a", "b"}, {"c", "d"}, {"e", "f"}, {}} {
		if u.choose(2, now); !slices.Equal(u.pair, want) {
			t.Errorf("the pair is %q, want %q", u.pair, want)
		}
	}
}

// TestRetriesBecomeRare: an absent name is asked for again at intervals that double up to five
// minutes (UP-19).
func TestRetriesBecomeRare(t *testing.T) {
	now := time.Unix(0, 0)
	u := unanswered{on: true, learned: now}
	u.look([]string{"a"})
	for _, want := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
		at := u.retryAt()
		if got := at.Sub(now); got != want*time.Second {
			t.Errorf("it is asked for after %v, want %v", got, want*time.Second)
		}
		now = at
		u.choose(1, now)
	}
	u.learned = now
	u.look(nil) // it has been answered
	u.look([]string{"a"})
	if at := u.retryAt(); !at.Equal(now.Add(retryFirst)) {
		t.Errorf("it is asked for at %v when it is absent again, want %v", at, now.Add(retryFirst))
	}
	if u.choose(9, now.Add(time.Hour)); len(u.pair) != 1 {
		t.Errorf("%q are asked for again", u.pair)
	}
}

// TestAPairMayComeToNothing: the others are asked for again even if a pair is never written, because
// its names were answered meanwhile.
func TestAPairMayComeToNothing(t *testing.T) {
	now := time.Unix(0, 0)
	u := unanswered{on: true, due: []string{"a", "b"}, pairedAt: now}
	u.choose(1, now)
	if at := u.deadline(time.Minute, now); !at.Equal(now.Add(pairEvery)) {
		t.Errorf("the next is chosen at %v, want %v", at, now.Add(pairEvery))
	}
	if at := u.deadline(time.Minute, now.Add(pairEvery)); !at.IsZero() {
		t.Errorf("while a pair waits to be written, the next is to be chosen at %v", at)
	}
}

// TestARelayGetsTheSubscribe: a server that turns out to be a relay is not asked again (MISS-5), but
// what was unsubscribed to ask again is subscribed.
func TestARelayGetsTheSubscribe(t *testing.T) {
	c := Core{config: Config{ExplicitMissing: Yes}, entries: make([]entry, 1)}
	l := &laneState{unanswered: unanswered{on: true, due: []string{"b"}, pair: []string{"a"}, given: true}}
	c.tickUnanswered(&slot{}, l, time.Unix(0, 0))
	if u := &l.unanswered; !u.given || len(u.pair) != 1 {
		t.Error("what was unsubscribed stays so")
	}
	l.unanswered.given = false
	c.tickUnanswered(&slot{}, l, time.Unix(0, 0))
	if u := &l.unanswered; u.on || u.pair != nil || u.due != nil {
		t.Errorf("%+v is left to ask for", u)
	}
}

// TestAPairForgetsWhatIsGivenUp: a name that was unsubscribed to ask again, and given up before its
// subscribe was written, stays unsubscribed.
func TestAPairForgetsWhatIsGivenUp(t *testing.T) {
	now := time.Unix(0, 0)
	s := streamState{alive: &liveness{}}
	l := &laneState{sent: map[string]time.Time{"b": now}, unanswered: unanswered{on: true, pair: []string{"b", "a", "b"}, given: true}}
	req := s.askAgain(l, unlimited(), now)
	if !slices.Equal(req.GetResourceNamesSubscribe(), []string{"b"}) || len(req.GetResourceNamesUnsubscribe()) > 0 {
		t.Errorf("%v is asked for, want b", req)
	}
	if s.alive.asked != 1 {
		t.Error("a stream on which it stays unanswered is not checked")
	}
}

// TestANameLeavesAPair: a name whose subscribe is still to be written leaves the pair, and no other does.
func TestANameLeavesAPair(t *testing.T) {
	u := unanswered{pair: []string{"a", "b"}, given: true}
	if !u.leave("a") || u.leave("a") || !slices.Equal(u.pair, []string{"b"}) {
		t.Errorf("the pair is %q, want b", u.pair)
	}
	if u.given = false; u.leave("b") || len(u.pair) != 1 {
		t.Errorf("what is not unsubscribed yet leaves the pair %q", u.pair)
	}
}

// TestOnlyARemovalIsNoAnswer: a name that was unsubscribed to ask again is answered by a resource, by
// its alias, by an error and by a fault, and not by a removal (UP-19).
func TestOnlyARemovalIsNoAnswer(t *testing.T) {
	names := []string{"alias", "fault", "own", "refused", "removed"}
	u := unanswered{on: true, unsubscribed: make(map[string]struct{})}
	for _, name := range names {
		u.unsubscribed[name] = struct{}{}
	}
	r := &discovery.Resource{Name: "own", Aliases: []string{"alias"}, Resource: &anypb.Any{}}
	up := cache.Update{
		Set:     []cache.Received{{Resource: cache.NewResource(cache.Endpoint, r, cache.Fingerprint{})}},
		Errors:  []cache.Error{{Name: "refused"}},
		Kept:    []string{"fault"},
		Removed: []string{"removed", "other"},
	}
	u.answers(&up)
	if left := slices.Collect(maps.Keys(u.unsubscribed)); !slices.Equal(left, []string{"removed"}) {
		t.Errorf("%q have no answer, want the one that was removed", left)
	}
	if !slices.Equal(up.Removed, []string{"other"}) {
		t.Errorf("%q are removed, want only what is not asked for again", up.Removed)
	}
}

// TestEveryRepeatedSubscribeIsLookedAt: each name whose subscribe is repeated is unsubscribed when its
// own time is over, also if others were overdue before (VALID-5).
func TestEveryRepeatedSubscribeIsLookedAt(t *testing.T) {
	now := time.Unix(0, 0)
	later := now.Add(insistAfter / 2)
	l := &laneState{want: newPending(), drop: newPending(), again: map[string]time.Time{"a": now, "b": later, "c": {}}, insistAt: now.Add(insistAfter)}
	l.insist(now.Add(insistAfter))
	if want := later.Add(insistAfter); !l.insistAt.Equal(want) || !l.drop.has("a") || l.drop.has("b") {
		t.Errorf("the next look is at %v, want %v", l.insistAt, want)
	}
	l.insist(later.Add(insistAfter))
	if !l.drop.has("b") || l.drop.has("c") || !l.insistAt.IsZero() {
		t.Errorf("after the last, the next look is at %v", l.insistAt)
	}
}
