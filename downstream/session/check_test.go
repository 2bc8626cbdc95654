package session

import (
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestCheckFinds: the invariants hold for a client that has asked for names and for the wildcard,
// and Check finds each that is broken.
func TestCheckFinds(t *testing.T) {
	const id, later = cache.ID(99), cache.Seq(1000)
	for _, tt := range []struct {
		name  string
		spoil func(s *Session, d *deltaState)
		want  string
	}{
		{"nothing", func(*Session, *deltaState) {}, ""},
		{"order of types", func(s *Session, _ *deltaState) { slices.Reverse(s.states) }, "types are not in order"},
		{"clusters", func(s *Session, _ *deltaState) { s.clusters = s.states[1] }, "clusters are another type's"},
		{"what waits", func(s *Session, _ *deltaState) { s.clusters, s.waitingSince = nil, time.Now() }, "of which there are none"},
		{"removals that wait", func(s *Session, _ *deltaState) { s.find(cache.Listener).base().waitSince = time.Now() }, "removals of LDS wait"},
		{"parts", func(s *Session, d *deltaState) {
			s.chunks, s.chunked = []*Response{{Type: d.url}, {}}, &candidate{state: d}
		}, "is another response's"},
		{"no parts", func(s *Session, d *deltaState) { s.chunked = &candidate{state: d} }, "0 parts are left"},
		{"too many in flight", func(_ *Session, d *deltaState) { d.most = 0 }, "at most 0 are remembered"},
		{"in flight out of order", func(_ *Session, d *deltaState) {
			d.unacked = append(d.unacked, sent{nonce: "before", at: time.Unix(0, 0)})
			d.lastNonce = "before"
		}, "is not in order"},
		{"the last nonce", func(_ *Session, d *deltaState) { d.lastNonce = "another" }, "the last response is not another"},
		{"a rejection", func(_ *Session, d *deltaState) { d.rejected = &Rejection{From: 2, To: 1} }, "rejected from"},
		{"a cursor", func(_ *Session, d *deltaState) { d.sentTo = later }, "sent up to 1000"},
		{"what is accepted", func(_ *Session, d *deltaState) { d.ackedTo = later }, "accepted up to 1000"},
		{"an exact client's positions", func(_ *Session, d *deltaState) { d.removedTo = 0 }, "was sent removals up to 0"},
		{"wanted by nobody", func(_ *Session, d *deltaState) { d.exact.put("other", "", 0) }, `"other" is held, and nobody wants it`},
		{"versions brought", func(_ *Session, d *deltaState) {
			d.exact.claim(map[string]string{"n": "1"})
			d.exact.claims = 7
		}, "counted are 7"},
		{"plain", func(_ *Session, d *deltaState) { d.exact, d.removedTo = nil, d.sentTo }, "has names and the wildcard"},
		{"erred", func(_ *Session, d *deltaState) { put(&d.erred, id, struct{}{}) }, "an error is to be over"},
		{"first answer", func(_ *Session, d *deltaState) { d.opening = true }, "was not asked for"},
		{"a pile", func(_ *Session, d *deltaState) { d.changed.items, d.changed.limit = make([]cache.ID, 9), 3 }, "6 too high"},
		{"told of a name", func(_ *Session, d *deltaState) {
			d.sub.Read(func(v fanout.View) { v.Tell(v.Names()[0], fanout.ToldCopy(later)) })
		}, "was told at 1000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSession(t)
			tt.spoil(s, s.find(cache.Cluster).(*deltaState))
			broken := strings.Join(s.Check(), "\n")
			if tt.want == "" && broken != "" || !strings.Contains(broken, tt.want) {
				t.Errorf("got %q, want %q", broken, tt.want)
			}
		})
	}
}

// newSession returns the Session of a client that was sent a name, an alias and a member, and
// owes an ACK.
func newSession(t *testing.T) *Session {
	t.Helper()
	hub := fanout.NewHub(fanout.Config{Linger: time.Minute})
	s := New(&Config{MaxName: 100, MaxNames: 100, AckTimeout: time.Minute}, Stream{Delta: true}, Peer{}, oneGroup{hub}, NewClusterDeliveries(), func() {})
	now := time.Unix(1000, 0)
	ask := func(typ cache.TypeURL, names ...string) {
		req := &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "n"}, TypeUrl: string(typ), ResourceNamesSubscribe: names}
		if _, end := s.DeltaRequest(req, now); end != nil {
			t.Fatal(end)
		}
	}
	ask(cache.Cluster, "n", "x", "*")
	ask(cache.Listener, "l")
	resource := func(name string, aliases ...string) *cache.Resource {
		return cache.NewResource(cache.Cluster, &discovery.Resource{Name: name, Aliases: aliases, Resource: &anypb.Any{TypeUrl: string(cache.Cluster)}}, cache.Fingerprint{})
	}
	hub.Apply(fanout.Lane{Type: cache.Cluster}, &cache.Update{Set: []cache.Received{{Resource: resource("n")}, {Resource: resource("r", "x")}}})
	hub.Apply(fanout.Lane{Type: cache.Cluster, Wildcard: true}, &cache.Update{Set: []cache.Received{{Resource: resource("m")}}, Synced: true})
	for r, end := s.Next(now); r != nil || end != nil; r, end = s.Next(now) {
		if end != nil {
			t.Fatal(end)
		}
	}
	return s
}
