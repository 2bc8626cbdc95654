package session

import (
	"maps"
	"slices"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestPairsAreBounded: at most so many names are asked for again at a time, first those whose
// silence is going to count (UP-19).
func TestPairsAreBounded(t *testing.T) {
	now := time.Unix(0, 0)
	u := unanswered{on: true, due: []string{"a", "b", "c"}, lookAt: now.Add(lookAfter)}
	u.look([]string{"d", "e", "f"}, nil)
	now = now.Add(retryFirst)
	for _, want := range [][]string{{"a", "b"}, {"c", "d"}, {"e", "f"}, {}} {
		if pair := u.choose(2, now); !slices.Equal(pair, want) {
			t.Errorf("the pair is %q, want %q", pair, want)
		}
	}
}

// TestRetriesBecomeRare: an absent name is asked for again at intervals that double up to five
// minutes (UP-19).
func TestRetriesBecomeRare(t *testing.T) {
	now := time.Unix(0, 0)
	u := unanswered{on: true, lookAt: now.Add(lookAfter)}
	u.look([]string{"a"}, nil)
	for _, want := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300} {
		at, _ := u.retries.next()
		if got := at.Sub(now); got != want*time.Second {
			t.Errorf("it is asked for after %v, want %v", got, want*time.Second)
		}
		now = at
		u.choose(1, now)
	}
	u.look(nil, []string{"a"}) // it has been answered
	u.lookSoon(now)
	u.look([]string{"a"}, nil)
	if at, _ := u.retries.next(); !at.Equal(now.Add(retryFirst)) {
		t.Errorf("it is asked for at %v when it is absent again, want %v", at, now.Add(retryFirst))
	}
	if pair := u.choose(9, now.Add(time.Hour)); len(pair) != 1 {
		t.Errorf("%q are asked for again", pair)
	}
}

// TestPairsAreSpaced: the next names are asked for again when the time between two pairs is over, even if
// the last pair came to nothing (UP-19).
func TestPairsAreSpaced(t *testing.T) {
	now := time.Unix(0, 0)
	l := laneState{unanswered: unanswered{on: true, due: []string{"a", "b"}}}
	l.unanswered.choose(1, now)
	if at := l.unansweredAt(time.Minute); !at.Equal(now.Add(pairEvery)) {
		t.Errorf("the next is chosen at %v, want %v", at, now.Add(pairEvery))
	}
}

// askedAgain is a lane on which names were subscribed, and are asked for again now.
func askedAgain(names ...string) (*streamState, *laneState) {
	c := NewCore(Config{Entries: make([]Entry, 1)}, fanout.NewHub(fanout.Config{}), nil)
	s := c.newStream(&c.main, nil)
	s.carry(fanout.Lane{Type: cache.Endpoint}, false)
	l := s.lanes[cache.Endpoint]
	l.askedAt = time.Unix(1, 0)
	s.subscribed(l, names, time.Unix(1, 0))
	l.askAgain(names)
	return s, l
}

// TestAPairIsTwoRequests: the first unsubscribes, and the second subscribes; the timers go on from the
// first subscribe, and a stream on which the names stay unanswered is checked (UP-19).
func TestAPairIsTwoRequests(t *testing.T) {
	s, l := askedAgain("b", "a")
	now := time.Unix(5, 0)
	if subscribe, unsubscribe := s.take(l, unlimited(), now); len(subscribe) > 0 || !slices.Equal(unsubscribe, []string{"a", "b"}) {
		t.Errorf("%q are subscribed and %q unsubscribed at first", subscribe, unsubscribe)
	}
	if current := s.timers.missing[0].current(); len(current) != 2 {
		t.Errorf("between the requests %q have a timer", current)
	}
	asked := s.alive.asked
	if subscribe, unsubscribe := s.take(l, unlimited(), now); len(unsubscribe) > 0 || !slices.Equal(subscribe, []string{"a", "b"}) {
		t.Errorf("%q are subscribed and %q unsubscribed then", subscribe, unsubscribe)
	}
	if current := s.timers.missing[0].current(); len(current) != 2 || len(s.timers.missing) != 1 || s.alive.asked != asked+1 {
		t.Errorf("%q have their first timer, of %d; %d questions", current, len(s.timers.missing), s.alive.asked)
	}
}

// TestANameLeavesAPair: a name that is given up, or answered, is not subscribed again; what was
// unsubscribed already stays so. What is answered, or given up without an unsubscribe (UP-9), is not
// unsubscribed if it is not yet.
func TestANameLeavesAPair(t *testing.T) {
	s, l := askedAgain("a", "answered", "given up", "left")
	now := time.Unix(5, 0)
	l.answersAgain(&cache.Update{Kept: []string{"answered"}})
	s.change(l, fanout.Interest{Leave: []string{"left"}}, time.Time{})
	if _, unsubscribe := s.take(l, unlimited(), now); !slices.Equal(unsubscribe, []string{"a", "given up"}) {
		t.Errorf("%q are unsubscribed", unsubscribe)
	}
	s.change(l, fanout.Interest{Drop: []string{"given up"}}, time.Time{})
	if subscribe, unsubscribe := s.take(l, unlimited(), now); len(unsubscribe) > 0 || !slices.Equal(subscribe, []string{"a"}) {
		t.Errorf("%q are subscribed and %q unsubscribed", subscribe, unsubscribe)
	}
	if !l.subscribed("answered") || l.subscribed("given up") {
		t.Errorf("%v are subscribed", l.sent)
	}
}

// TestARelayGetsTheSubscribe: a server that turns out to be a relay is not asked again (MISS-5), but
// what was unsubscribed to ask again is subscribed.
func TestARelayGetsTheSubscribe(t *testing.T) {
	s, l := askedAgain("a")
	s.take(l, unlimited(), time.Unix(5, 0))
	l.unanswered.due = []string{"a"}
	c := Core{config: Config{Dialect: Dialect{ExplicitMissing: Yes}}, ranking: ranking{entries: make([]entry, 1)}}
	c.tickUnanswered(&slot{}, l, time.Unix(6, 0))
	if u := &l.unanswered; u.on || u.due != nil {
		t.Errorf("%+v is left to ask for", u)
	}
	if subscribe, _ := s.take(l, unlimited(), time.Unix(6, 0)); !slices.Equal(subscribe, []string{"a"}) {
		t.Errorf("%q are subscribed, want a", subscribe)
	}
}

// TestOnlyARemovalIsNoAnswer: a name that was unsubscribed to ask again is answered by a resource, by
// its alias, by an error and by a fault, and not by a removal (UP-19).
func TestOnlyARemovalIsNoAnswer(t *testing.T) {
	names := []string{"alias", "fault", "own", "refused", "removed"}
	l := laneState{unanswered: unanswered{on: true, unsubscribed: make(map[string]time.Time)}, drop: newPending()}
	for _, name := range names {
		l.unanswered.unsubscribed[name] = time.Unix(0, 0)
	}
	r := &discovery.Resource{Name: "own", Aliases: []string{"alias"}, Resource: &anypb.Any{}}
	up := cache.Update{
		Set:     []cache.Received{{Resource: cache.NewResource(cache.Endpoint, r, cache.Fingerprint{})}},
		Errors:  []cache.Error{{Name: "refused"}},
		Kept:    []string{"fault"},
		Removed: []string{"removed", "other"},
	}
	l.answersAgain(&up)
	if left := slices.Collect(maps.Keys(l.unanswered.unsubscribed)); !slices.Equal(left, []string{"removed"}) {
		t.Errorf("%q have no answer, want the one that was removed", left)
	}
	if !slices.Equal(up.Removed, []string{"other"}) {
		t.Errorf("%q are removed, want only what is not asked for again", up.Removed)
	}
}

// TestARemovalBeforeTheUnsubscribeCounts: until the unsubscribe is written a removal answers the first
// subscribe, and the name is not asked for again (UP-19).
func TestARemovalBeforeTheUnsubscribeCounts(t *testing.T) {
	s, l := askedAgain("a", "gone")
	up := cache.Update{Removed: []string{"gone"}}
	if l.answersAgain(&up); !slices.Equal(up.Removed, []string{"gone"}) {
		t.Errorf("%q are removed, want gone", up.Removed)
	}
	if _, unsubscribe := s.take(l, unlimited(), time.Unix(5, 0)); !slices.Equal(unsubscribe, []string{"a"}) {
		t.Errorf("%q are unsubscribed, want a", unsubscribe)
	}
	up = cache.Update{Removed: []string{"a", "gone"}}
	if l.answersAgain(&up); !slices.Equal(up.Removed, []string{"gone"}) {
		t.Errorf("%q are removed then, want gone", up.Removed)
	}
}

// TestANameInAPairIsStillAskedFor: between the requests of a pair the control plane may still answer what
// was asked first: an error counts, and a fault is complained of (UP-19, ERR-10).
func TestANameInAPairIsStillAskedFor(t *testing.T) {
	for written := range 2 {
		p := listen(t)
		p.wants(cache.Endpoint, "refused", "fault")
		p.pass(time.Second)
		p.core.main.stream.lanes[cache.Endpoint].askAgain([]string{"refused", "fault"})
		for range written {
			p.core.Next(p.stream, p.now)
		}
		d := Decode(&discovery.DeltaDiscoveryResponse{
			TypeUrl:        string(cache.Endpoint),
			Resources:      []*discovery.Resource{{Name: "fault"}},
			ResourceErrors: []*discovery.ResourceError{{ResourceName: &discovery.ResourceName{Name: "refused"}, ErrorDetail: &statuspb.Status{Code: cache.Unavailable}}},
		}, cache.Fingerprint{})
		p.core.Receive(p.stream, d, p.now)
		nack, _ := p.core.Applied(p.stream, d, p.now)
		if slices.Sort(d.Update.Kept); !slices.Equal(d.Update.Kept, []string{"fault", "refused"}) || nack == "" {
			t.Errorf("after %d requests %q are kept, and the response is rejected with %q", written, d.Update.Kept, nack)
		}
	}
}

// TestPairsDoNotPileUp: no pair is chosen within a second after the last one was written, however long the
// control plane did not read (UP-19).
func TestPairsDoNotPileUp(t *testing.T) {
	p := listen(t)
	p.wants(cache.Endpoint, "a", "b")
	p.pass(time.Second)
	l := p.core.main.stream.lanes[cache.Endpoint]
	l.askAgain([]string{"a"})
	l.unanswered.due = []string{"b"}
	p.core.main.stream.wake(l)
	p.core.Tick(p.now)
	if l.drop.has("b") {
		t.Error("the next names go with the last ones")
	}
	if at := p.core.Deadline(p.now); !at.IsZero() && !at.After(p.now) {
		t.Errorf("there is something to do at %v, and it is %v", at, p.now)
	}
	p.now = p.now.Add(5 * time.Second)
	for p.core.Next(p.stream, p.now) != nil {
		continue
	}
	if p.core.Tick(p.now); l.drop.has("b") {
		t.Error("the next names go at once when the last ones are written")
	}
	if p.core.Tick(p.now.Add(pairEvery)); !l.drop.has("b") {
		t.Error("the next names wait although the last ones are written")
	}
}

// TestALapseWakesItsTypeOnly: what runs out in one type costs other types nothing (TTL-2, VALID-9).
func TestALapseWakesItsTypeOnly(t *testing.T) {
	d := newDesk(t, Config{SettleCap: time.Second, Entries: []Entry{{Name: "up", Mode: ModeDelta}}})
	for _, typ := range []cache.TypeURL{cache.Cluster, cache.Endpoint} {
		d.hub.Subscribe(typ, fanout.NewSubscriber(func() {})).Delta([]string{"a"}, nil, d.now)
	}
	d.settle()
	lanes := d.core.main.stream.lanes
	for _, l := range lanes {
		l.unanswered.on = true
	}
	r := Decode(&discovery.DeltaDiscoveryResponse{TypeUrl: string(cache.Endpoint), Nonce: "n", Resources: []*discovery.Resource{
		{Name: "a", Version: "1", Ttl: durationpb.New(time.Minute), Resource: &anypb.Any{TypeUrl: string(cache.Endpoint)}},
	}}, cache.Fingerprint{})
	d.core.Receive(d.id, r, d.now)
	for _, e := range d.core.Effects() {
		e.Apply(d.hub)
	}
	d.core.Applied(d.id, r, d.now)
	d.now = d.now.Add(time.Minute)
	d.core.Tick(d.now)
	if lanes[cache.Endpoint].unanswered.lookAt.IsZero() || !lanes[cache.Cluster].unanswered.lookAt.IsZero() {
		t.Error("only the type of which something runs out is to look at what is absent")
	}
}
