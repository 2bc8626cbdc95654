package session

import (
	"slices"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// mayRead are rules that allow names.
type mayRead []string

func (m mayRead) Allows(name string) bool { return slices.Contains(m, name) }
func (mayRead) Rules() string             { return "rules.yaml:1" }

// judged has all clients in one group, by rules that may change.
type judged struct {
	hub   *fanout.Hub
	reads mayRead
	end   *End // why they may not join
}

func (*judged) Key(Peer, *core.Node) (string, *End) { return "", nil }
func (j *judged) Join(Peer, *core.Node, cache.TypeURL) (Membership, *End) {
	if j.end != nil {
		return Membership{Own: true, Reads: j.reads}, j.end
	}
	return Membership{Hub: j.hub, Reads: j.reads, Leave: func() {}}, nil
}

func newJudged(t *testing.T, most int, names ...string) (*told, *judged) {
	c := &Config{AckTimeout: 10 * time.Second, MaxName: 1000, MaxNames: 1000, MaxResponse: most}
	groups := &judged{hub: fanout.NewHub(fanout.Config{Linger: time.Second}), reads: names}
	return &told{t: t, hub: groups.hub, now: epoch, Session: New(c, Stream{Delta: true}, Peer{}, groups, NewClusterDeliveries(), func() {})}, groups
}

func (s *told) rejudge() {
	s.t.Helper()
	if end := s.Rejudge(s.now); end != nil {
		s.t.Fatal(end)
	}
}

func (s *told) named(typ cache.TypeURL, resources ...*cache.Resource) {
	u := &cache.Update{}
	for _, r := range resources {
		u.Set = append(u.Set, cache.Received{Resource: r})
	}
	s.hub.Apply(fanout.Lane{Type: typ}, u)
}

// TestPartsAreJudgedAgain: when rules change while a response is sent in parts, those that are left have nothing
// that its client may not read any more, and the others.
func TestPartsAreJudgedAgain(t *testing.T) {
	s, groups := newJudged(t, 600, "a", "b", "c")
	s.ask(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint), ResourceNamesSubscribe: []string{"a", "b", "c"}})
	s.named(cache.Endpoint, resourceOf("a", 300), resourceOf("b", 300), resourceOf("c", 300))
	first := s.read()
	if first == nil || !first.Partial {
		t.Fatalf("%+v, want a part", first)
	}
	groups.reads = mayRead{first.Resources[0].Name}
	for _, name := range []string{"a", "b", "c"} {
		if name != first.Resources[0].Name {
			groups.reads = append(groups.reads, name) // and the third one is lost
			break
		}
	}
	s.rejudge()
	got := make(map[string]bool)
	for r := s.read(); r != nil; r = s.read() {
		for _, res := range r.Resources {
			if !groups.reads.Allows(res.Name) {
				t.Errorf("it is sent %s, which it may not read", res.Name)
			}
			got[res.Name] = true
		}
	}
	if !got[groups.reads[1]] {
		t.Errorf("it is not sent %s", groups.reads[1])
	}
}

// TestWildcardThatNeverWasTakesNothing: a change of rules takes nothing away for a wildcard that was not allowed
// before either (NODE-15).
func TestWildcardThatNeverWasTakesNothing(t *testing.T) {
	s, groups := newJudged(t, 0, "a")
	s.ask(&discovery.DeltaDiscoveryRequest{
		TypeUrl: string(cache.Listener), ResourceNamesSubscribe: []string{"*", "a", "b"}, InitialResourceVersions: map[string]string{"x": "1", "y": "1"},
	})
	s.named(cache.Listener, resourceOf("a", 1))
	s.accept(s.read())
	groups.reads = mayRead{"a", "b"}
	s.rejudge()
	s.named(cache.Listener, resourceOf("b", 1))
	for r := s.read(); r != nil; r = s.read() {
		if len(r.Removed) > 0 {
			t.Errorf("%v are removed", r.Removed)
		}
		s.accept(r)
	}
}

// TestRulesMakeRoomNeeded: a type that rules begin to allow, and for which there is no room, ends the stream later
// (NODE-14).
func TestRulesMakeRoomNeeded(t *testing.T) {
	s, groups := newJudged(t, 0, "a")
	groups.end = &End{Forbidden, "no rule"}
	s.ask(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Secret), ResourceNamesSubscribe: []string{"a"}})
	s.hear()
	groups.end = &End{Overcrowded, "no room"}
	s.rejudge()
	if _, end := s.Next(s.now.Add(askAgainAfter)); end == nil || end.Reason != AskAgain {
		t.Errorf("the stream ends with %v", end)
	}
}

// TestRulesThatFindNoRoom: a client that rules put into another group, for which there is no room, keeps what it
// has and may read, until its stream ends (NODE-14).
func TestRulesThatFindNoRoom(t *testing.T) {
	s, groups := newJudged(t, 0, "a", "b")
	s.ask(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Secret), ResourceNamesSubscribe: []string{"a", "b"}})
	s.named(cache.Secret, resourceOf("a", 1), resourceOf("b", 1))
	s.accept(s.read())
	groups.end, groups.reads = &End{Overcrowded, "no room"}, mayRead{"a"}
	s.rejudge()
	removed := make(map[string]bool)
	for r := s.read(); r != nil; r = s.read() {
		for _, name := range r.Removed {
			removed[name] = true
		}
	}
	if removed["a"] || !removed["b"] {
		t.Errorf("%v are removed, want b alone", removed)
	}
	if _, end := s.Next(s.now.Add(askAgainAfter)); end == nil || end.Reason != AskAgain {
		t.Errorf("the stream ends with %v", end)
	}
}
