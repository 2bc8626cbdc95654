package session

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// noSecrets has all clients in one group, except for secrets: of those a client has a group of
// its own, for which there is room or not.
type noSecrets struct {
	oneGroup
	own    *fanout.Hub
	reason Reason // "": there is room
	asked  int
}

func (g *noSecrets) Join(p Peer, n *core.Node, t cache.TypeURL) (Membership, *End) {
	if t != cache.Secret {
		return g.oneGroup.Join(p, n, t)
	}
	g.asked++
	if g.reason != "" {
		return Membership{Own: true}, &End{g.reason, "no secrets"}
	}
	return Membership{Hub: g.own, Own: true, Leave: func() {}}, nil
}

func newRefused(t *testing.T, reason Reason) (*told, *noSecrets) {
	c := &Config{AckTimeout: 10 * time.Second, MaxName: 1000, MaxNames: 1000}
	hub := fanout.NewHub(fanout.Config{Linger: time.Second})
	groups := &noSecrets{oneGroup: oneGroup{hub}, own: fanout.NewHub(fanout.Config{}), reason: reason}
	s := &told{t: t, hub: hub, now: epoch, Session: New(c, Stream{Delta: true}, Peer{}, groups, NewClusterDeliveries(), func() {})}
	return s, groups
}

func (s *told) news(want ...Refusal) {
	s.t.Helper()
	if got := s.Refusals(); len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		s.t.Errorf("the news are %+v, want %+v", got, want)
	}
}

func secretRequest(subscribe, unsubscribe []string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Secret), ResourceNamesSubscribe: subscribe, ResourceNamesUnsubscribe: unsubscribe}
}

// TestRefusalIsNewsOnce: a type that is refused is reported once for each stream, and once more
// if its client is sent no error (NODE-14).
func TestRefusalIsNewsOnce(t *testing.T) {
	s, groups := newRefused(t, Forbidden)
	refused := Refusal{Type: cache.Secret, Reason: Forbidden, Message: "xds-relay: no secrets", Notice: NoticeErrors}
	s.ask(secretRequest([]string{"a"}, nil))
	s.news(refused)
	if r := s.read(); len(r.Errors) != 1 || r.Errors[0].GetErrorDetail().GetCode() != 7 {
		t.Errorf("the client is told %+v", r)
	}
	s.ask(secretRequest([]string{"b"}, nil))
	s.news()
	refused.Notice = NoticeNothing
	s.ask(secretRequest([]string{"*"}, nil))
	s.news(refused)
	s.ask(secretRequest(nil, []string{"*"}))
	s.ask(secretRequest([]string{"*"}, nil))
	s.news()

	// Who may not have it is not asked for again.
	s.now = s.now.Add(time.Hour)
	s.read()
	if groups.asked != 1 {
		t.Errorf("its group was asked for %d times", groups.asked)
	}
}

// TestRoomIsLookedForAgain: a Session looks for room again every retryRoom, and its client need
// not repeat what it holds and asks for (NODE-14).
func TestRoomIsLookedForAgain(t *testing.T) {
	s, groups := newRefused(t, Overcrowded)
	s.ask(secretRequest([]string{"a"}, nil))
	s.Refusals()
	first := s.read()
	for i := range 3 {
		at := s.now.Add(retryRoom)
		if got := s.Deadline(s.now); !got.Equal(at) {
			t.Fatalf("the deadline is %v, want %v", got, at)
		}
		s.now = at.Add(-time.Nanosecond)
		if s.read(); groups.asked != i+1 {
			t.Errorf("%d times asked for room, before it was time", groups.asked)
		}
		s.now = at
		if r := s.read(); r != nil || groups.asked != i+2 {
			t.Errorf("%d times asked for room, and told %+v", groups.asked, r)
		}
	}
	groups.reason, s.now = "", s.now.Add(retryRoom)
	s.read()
	s.news(Refusal{Type: cache.Secret, Notice: NoticeServed})
	if got := s.Deadline(s.now); !got.IsZero() {
		t.Errorf("it looks for room again at %v", got)
	}
	lane := fanout.Lane{Type: cache.Secret}
	if names := groups.own.On(lane).Names(); len(names) != 1 || names[0] != "a" {
		t.Errorf("its group is asked for %v", names)
	}
	s.accept(first) // late
	groups.own.Apply(lane, &cache.Update{Set: []cache.Received{{Resource: resourceOf("a", 1)}}})
	if r := s.read(); r == nil || len(r.Resources) != 1 || r.Nonce == first.Nonce {
		t.Errorf("it is told %+v", r)
	}
	if got := s.find(cache.Secret).base().describe(); got.Refused != "" || got.Resolved != 1 {
		t.Errorf("it is described as %+v", got)
	}
}

// TestNothingIsAskedOfANewGroupForWhoGaveAllUp: when there is room after all for the type of a SotW
// client that asks for none of it any more, its group does not ask upstream for the wildcard, not
// even for a moment (NODE-14).
func TestNothingIsAskedOfANewGroupForWhoGaveAllUp(t *testing.T) {
	s, groups := newRefused(t, Overcrowded)
	s.Session = New(s.config, Stream{}, Peer{}, groups, NewClusterDeliveries(), func() {})
	for _, names := range [][]string{{"a"}, nil} {
		req := &discovery.DiscoveryRequest{TypeUrl: string(cache.Secret), ResourceNames: names}
		if _, end := s.SotWRequest(req, s.now); end != nil {
			t.Fatal(end)
		}
	}
	s.read()
	groups.own.Wanted().OnWake(func() {
		changes, _ := groups.own.Changes(s.now, func(fanout.Lane) (c fanout.Carrier, carried bool) { return })
		for lane, i := range changes {
			t.Errorf("upstream is to look at %+v, and finds %+v", lane, i)
		}
	})
	groups.reason, s.now = "", s.now.Add(retryRoom)
	s.read()
	if m := s.find(cache.Secret).base().group; m.Hub != groups.own {
		t.Errorf("it is served by %+v", m)
	}
}

// TestRefusedNamesAreForgotten: what a client asks for in vain and gives up is not kept.
func TestRefusedNamesAreForgotten(t *testing.T) {
	s, _ := newRefused(t, Forbidden)
	for i := range 10_000 {
		name := []string{fmt.Sprint("name-", i)}
		s.ask(secretRequest(name, nil))
		s.ask(secretRequest(nil, name))
		if i%100 == 0 {
			s.read()
		}
	}
	s.ask(secretRequest([]string{"last"}, nil))
	x := s.find(cache.Secret).base()
	if names := x.group.Hub.On(fanout.Lane{Type: cache.Secret}).Names(); len(names) != 1 {
		t.Errorf("%d names are kept", len(names))
	}
	if n := x.failed.len() + x.asked.len(); n > 5000 {
		t.Errorf("%d names are remembered", n)
	}
	if got := x.describe(); got.Group != "none" || got.Refused == "" || got.Names != 1 {
		t.Errorf("it is described as %+v", got)
	}
}
