package session

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/code"

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

// TestWantOfRoomEndsTheStream: where a type was refused for want of room, the stream ends one to two minutes later, at
// random, so that its client asks again (NODE-14).
func TestWantOfRoomEndsTheStream(t *testing.T) {
	for _, random := range []float64{0, 0.5} {
		s, groups := newRefused(t, Overcrowded)
		s.config.Random = func() float64 { return random }
		s.ask(secretRequest([]string{"a"}, nil))
		if r := s.read(); len(r.Errors) != 1 {
			t.Errorf("it is told %+v", r)
		}
		at := s.now.Add(askAgainAfter + time.Duration(random*float64(askAgainAfter)))
		if got := s.Deadline(s.now); !got.Equal(at) {
			t.Fatalf("the deadline is %v, want %v", got, at)
		}
		s.now = at.Add(-time.Nanosecond)
		if r := s.read(); r != nil || groups.asked != 1 {
			t.Errorf("its group was asked for %d times, and it is told %+v", groups.asked, r)
		}
		if _, end := s.Next(at); end == nil || end.Reason != AskAgain || end.Code() != code.Code_UNAVAILABLE {
			t.Errorf("the stream ends with %v", end)
		}
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
