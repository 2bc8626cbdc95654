package session

import (
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// court is a desk at which types are tried. Its control plane says nothing of its own accord.
type court struct {
	*desk
	streams map[StreamID]Role
	asked   []cache.TypeURL // on trial streams
	fails   *End            // how each attempt to open a trial stream fails
	ends    *End            // how each trial stream ends when it has asked
}

func inCourt(t *testing.T, mode Mode) *court {
	c := &court{newDesk(t, Config{
		SettleCap: time.Second, UnavailableAfter: 5 * time.Second, Answers: NewAnswers(), Entries: []Entry{{Name: "up", Mode: mode}},
	}), make(map[StreamID]Role), nil, nil, nil}
	c.wants(cache.Cluster)
	c.pass(100 * time.Millisecond)
	return c
}

// wants has clients want a name of each type.
func (c *court) wants(types ...cache.TypeURL) {
	for _, typ := range types {
		c.hub.Subscribe(typ, fanout.NewSubscriber(func() {})).Delta([]string{"a"}, nil, c.now)
	}
	c.core.Interest(c.now)
}

// pass has time pass as a caller does that only wakes up when something is due.
func (c *court) pass(d time.Duration) {
	c.t.Helper()
	end := c.now.Add(d)
	for range 100_000 {
		c.turn()
		if broken := c.core.Broken(c.now); len(broken) > 0 {
			c.t.Fatal(broken)
		}
		at := c.core.Deadline(c.now)
		if at.IsZero() || at.After(end) {
			c.now = end
			return
		}
		c.now = latest(c.now, at)
	}
	c.t.Fatal("there is always something due")
}

// turn does what is due now.
func (c *court) turn() {
	open, _ := c.core.Tick(c.now)
	for _, o := range open {
		if o.Role == Trial && c.fails != nil {
			c.core.Ended(o.ID, *c.fails, c.now)
			continue
		}
		c.streams[o.ID] = o.Role
		c.core.Opened(o.ID, c.now)
	}
	for _, e := range c.core.Effects() {
		e.Apply(c.hub)
	}
	for id, role := range c.streams {
		c.read(id, role)
	}
}

// read reads what a stream asks for.
func (c *court) read(id StreamID, role Role) {
	for req := c.core.Next(id, c.now); req != nil; req = c.core.Next(id, c.now) {
		if d, ok := req.(*discovery.DeltaDiscoveryRequest); ok && role == Trial {
			c.asked = append(c.asked, cache.TypeURL(d.GetTypeUrl()))
			if c.ends != nil {
				c.core.Ended(id, *c.ends, c.now)
			}
		}
	}
}

// carried reports whether the main stream carries a type.
func (c *court) carried(typ cache.TypeURL) bool {
	s, _ := c.core.carrier(fanout.Lane{Type: typ})
	return s == &c.core.main
}

// TestATypeThatIsNotAllowedTakesNoTurn: the types that may be asked for are tried, although others waited
// before them when upstream.types was changed (UP-21, H-39).
func TestATypeThatIsNotAllowedTakesNoTurn(t *testing.T) {
	c := inCourt(t, ModeDelta)
	c.wants("invented.1", "invented.2")
	c.pass(100 * time.Millisecond)
	to := c.core.config
	to.Types = []cache.TypeURL{cache.Cluster, "good"}
	c.core.Reconfigure(to, []bool{false}, c.now)
	c.pass(5 * time.Second)
	c.wants("good")
	c.pass(5 * time.Second)
	if !c.carried("good") {
		t.Errorf("what may be asked for is not; on trial were %q", c.asked)
	}
}

// TestAnAnswerToAnotherGroupEndsTheWait: a type that waits for its trial goes on the main stream when
// another group has had an answer (UP-21).
func TestAnAnswerToAnotherGroupEndsTheWait(t *testing.T) {
	c := inCourt(t, ModeDelta)
	c.wants("a.first", "b.waits")
	c.pass(100 * time.Millisecond)
	for _, typ := range []cache.TypeURL{"a.first", "b.waits"} { // one is on trial
		c.core.config.Answers.Add("up", typ)
	}
	c.pass(2 * time.Second)
	if !c.carried("a.first") || !c.carried("b.waits") || len(c.asked) != 1 {
		t.Errorf("the main stream lacks what was answered elsewhere; on trial were %q", c.asked)
	}
}

// TestWaitingTypesAreNotLookedAt: what is to be placed does not grow with the types that wait for their
// trial (UP-21, VALID-9).
func TestWaitingTypesAreNotLookedAt(t *testing.T) {
	c := inCourt(t, ModeDelta)
	for i := range 100 {
		c.wants(typeOf(i))
	}
	c.pass(100 * time.Millisecond)
	if n := len(c.core.trials.waiting); n != 100 {
		t.Fatalf("%d types wait", n)
	}
	if loose, look := len(c.core.loose), len(c.core.mayFail(c.core.wanted)); loose > 1 || look > 1 {
		t.Errorf("%d lanes are to be placed, and %d may be unavailable", loose, look)
	}
	c.core.Ended(c.core.main.id, End{Message: "gone"}, c.now)
	if n := len(c.core.loose); n != 100 { // one is on trial
		t.Errorf("without a main stream %d lanes are to be placed", n)
	}
	c.pass(5 * time.Minute)
	if n := len(c.core.main.stream.lanes); n != 101 {
		t.Errorf("the main stream carries %d types in the end", n)
	}
}

// TestTypesOfOneHolderTakeTurnsAsTheyCome: new types of a holder do not delay those that came before
// (UP-21).
func TestTypesOfOneHolderTakeTurnsAsTheyCome(t *testing.T) {
	c := inCourt(t, ModeDelta)
	c.wants("a.0")
	c.pass(10 * time.Millisecond)
	c.wants("z.good")
	c.turn()
	for i := range 10 {
		c.wants(typeOf(i))
		c.pass(900 * time.Millisecond)
	}
	if len(c.asked) < 2 || c.asked[1] != "z.good" {
		t.Errorf("on trial were %q", c.asked)
	}
}

// TestWithoutRoomForATrialThereIsNone: where no second stream can be opened, a type is asked for on the
// main stream (UP-21).
func TestWithoutRoomForATrialThereIsNone(t *testing.T) {
	c := inCourt(t, ModeDelta)
	c.fails = &End{Kind: EndNoRoom, Message: "there is no room for a stream"}
	c.wants("new")
	c.pass(time.Second)
	if !c.carried("new") {
		t.Error("a new type is never asked for")
	}
}

// TestATrialIsNotAboutTheMethod: a control plane that speaks Delta on the main stream may end the trial of a
// type that it does not know with UNIMPLEMENTED, in auto mode too. The type is refused, and then in quarantine
// (UP-21, H-39).
func TestATrialIsNotAboutTheMethod(t *testing.T) {
	c := inCourt(t, ModeAuto)
	c.pass(2 * time.Second)
	c.ends = &End{Kind: EndUnimplemented, Message: "unknown type"}
	c.wants("unknown")
	c.turn()
	for range 10 {
		c.turn()
	}
	if got := c.core.laneCondition(fanout.Lane{Type: "unknown"}); got != Refused || len(c.asked) != 1 {
		t.Errorf("after %d trials its condition is %s", len(c.asked), got)
	}
	c.pass(5 * time.Second)
	if c.core.suspects.quarantined["unknown"] == nil || len(c.asked) != convictAt {
		t.Errorf("after %d trials it is not in quarantine", len(c.asked))
	}
}
