package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// followed is a Delta client of Clusters, its control plane, and a clock.
type followed struct {
	t    *testing.T
	hub  *fanout.Hub
	s    *Session
	now  time.Time
	last *Response
}

func follow(t *testing.T, names ...string) *followed { return followIn(t, "", names...) }

func followIn(t *testing.T, group string, names ...string) *followed {
	hub := fanout.NewHub(fanout.Config{Name: group, Linger: time.Minute})
	f := &followed{t: t, hub: hub, now: time.Unix(1000, 0)}
	f.s = New(&Config{MaxName: 100, MaxNames: 100, AckTimeout: time.Hour}, Stream{Delta: true}, Peer{}, oneGroup{hub}, NewClusterDeliveries(), func() {})
	f.ask(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "n"}, ResourceNamesSubscribe: names})
	return f
}

func (f *followed) ask(req *discovery.DeltaDiscoveryRequest) {
	f.t.Helper()
	req.TypeUrl = string(cache.Cluster)
	if _, end := f.s.DeltaRequest(req, f.now); end != nil {
		f.t.Fatal(end)
	}
}

// changes has upstream send names in a version, and remove others, on a lane.
func (f *followed) changes(wildcard bool, version string, removed []string, names ...string) {
	u := &cache.Update{At: f.now, Removed: removed, Synced: true, Source: cache.NewSource(f.now, nil)}
	for _, name := range names {
		in := &discovery.Resource{Name: name, Resource: &anypb.Any{TypeUrl: string(cache.Cluster), Value: []byte(version)}}
		u.Set = append(u.Set, cache.Received{Resource: cache.NewResource(cache.Cluster, in, cache.Fingerprint{})})
	}
	f.hub.Apply(fanout.Lane{Type: cache.Cluster, Wildcard: wildcard}, u)
}

// sends has the relay send what it has to send.
func (f *followed) sends() {
	f.t.Helper()
	for r, end := f.s.Next(f.now); r != nil || end != nil; r, end = f.s.Next(f.now) {
		if end != nil {
			f.t.Fatal(end)
		}
		f.last = r
	}
}

func (f *followed) answers(message string) {
	req := &discovery.DeltaDiscoveryRequest{ResponseNonce: f.last.Nonce}
	if message != "" {
		req.ErrorDetail = &statuspb.Status{Message: message}
	}
	f.ask(req)
}

// TestSinceWhen: of a client it is known since when it has not been in step, and with how much.
func TestSinceWhen(t *testing.T) {
	f := follow(t, "a", "b", "*")
	second := func() { f.now = f.now.Add(time.Second) }
	is := func(what string, sync Sync, behind int, since, sent, acked int64) {
		t.Helper()
		c := f.s.Describe()[0]
		unix := func(at time.Time) int64 {
			if at.IsZero() {
				return 0
			}
			return at.Unix()
		}
		if at := f.s.Since(); !at.Equal(c.Since) {
			t.Errorf("%s: since %v, and at a glance since %v", what, c.Since, at)
		}
		got := fmt.Sprint(c.Sync, c.Behind, unix(c.Since), unix(c.LastSent), unix(c.LastAck))
		if want := fmt.Sprint(sync, behind, since, sent, acked); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	f.sends()
	is("before anything", unsentSync, 0, 0, 0, 0)
	second()
	f.changes(false, "1", nil, "a", "b")
	f.changes(true, "1", nil, "m", "n")
	second()
	f.sends()
	is("sent", unackedSync, 4, 1002, 1002, 0)
	second()
	f.answers("")
	is("accepted", syncedSync, 0, 0, 1002, 1003)
	second()
	f.changes(false, "2", nil, "a")
	f.sends()
	second()
	f.changes(false, "2", nil, "b") // it waits for the ACK
	f.changes(true, "2", []string{"n"}, "m")
	f.sends()
	is("it does not answer", unackedSync, 4, 1004, 1004, 1003)
	second()
	f.answers("no")
	f.sends()
	if c := f.s.Describe()[0]; c.NackedAt.Unix() != 1006 || c.Nack != "no" || c.Nacked != 1 {
		t.Errorf("rejected %d at %v: %q", c.Nacked, c.NackedAt, c.Nack)
	}
	is("it rejects, and is sent the rest", nackedSync, 4, 1006, 1006, 1003)
	second()
	f.answers("")
	is("it takes the rest", nackedSync, 1, 1006, 1006, 1007)
	second()
	f.changes(false, "3", nil, "a")
	f.sends()
	f.answers("")
	is("mended", syncedSync, 0, 0, 1008, 1008)
	if lacks := f.s.Lacks(cache.Cluster); lacks != nil {
		t.Errorf("it is in step, and lacks %v", lacks)
	}
}

// TestBehindCountsResources: a client that rejects one response after the other, or answers none, is behind with as many
// resources as there are, however often each was sent, and since the first of these responses.
func TestBehindCountsResources(t *testing.T) {
	for _, rejects := range []bool{true, false} {
		for _, wildcard := range []bool{true, false} {
			f := follow(t, "*")
			if !wildcard {
				f = follow(t, "a", "b")
			}
			f.s.config.AckTimeout = time.Second
			f.changes(wildcard, "1", nil, "a", "b")
			f.sends()
			f.answers("")
			for version := range 10 {
				f.now = f.now.Add(time.Minute)
				f.changes(wildcard, fmt.Sprint("v", version), nil, []string{"a", "b"}[version%2])
				if f.sends(); rejects {
					f.answers("no")
				}
			}
			lacks := f.s.Lacks(cache.Cluster)
			step := map[bool]Step{true: StepRejected, false: StepUnacked}[rejects]
			if len(lacks) != 2 || lacks[0].Step != step || lacks[0].Name+lacks[1].Name != "ab" && lacks[0].Name+lacks[1].Name != "ba" {
				t.Errorf("rejects %v, wildcard %v: it lacks %+v", rejects, wildcard, lacks)
			}
			c := f.s.Describe()[0]
			if c.Behind != 2 || c.Since.Unix() != 1060 {
				t.Errorf("rejects %v, wildcard %v: it is behind with %d since %d", rejects, wildcard, c.Behind, c.Since.Unix())
			}
		}
	}
}

// TestInStepAfterAnOutage: a client that lacks nothing is in step, and has nothing due, once the control plane that failed
// answers again.
func TestInStepAfterAnOutage(t *testing.T) {
	for _, names := range [][]string{{"a"}, {"*"}} {
		f := follow(t, names...)
		wildcard := names[0] == "*"
		f.changes(wildcard, "1", nil, "a")
		f.sends()
		f.answers("")
		lane := f.hub.On(fanout.Lane{Type: cache.Cluster, Wildcard: wildcard})
		lane.SetUnavailable(&statuspb.Status{Code: 14})
		lane.SetUnavailable(nil)
		f.last = nil
		f.sends()
		if c := f.s.Describe()[0]; f.last != nil || f.s.Due() || c.Sync != syncedSync {
			t.Errorf("%v: %s, due %v, and sent %+v", names, c.Sync, f.s.Due(), f.last)
		}
	}
}

// TestNames: of each resource it is known how far the client is with it.
func TestNames(t *testing.T) {
	f := follow(t, "a", "b", "gone", "never", "*")
	f.changes(false, "1", nil, "a", "b", "gone")
	f.changes(true, "1", nil, "m", "n")
	f.sends()
	f.answers("")
	f.changes(false, "2", []string{"gone"}, "a")
	f.sends()
	is := func(what string, want ...string) {
		t.Helper()
		names, _ := f.s.Names(cache.Cluster, "", 100)
		var got []string
		for _, n := range names {
			got = append(got, fmt.Sprint(n.Name, " ", n.Step, " ", n.Sent != "", n.Now != "", n.Sent == n.Now))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%q, want\n%q", what, got, want)
		}
	}
	is("unacknowledged", "a unacked true true true", "b synced true true true", "gone synced false false true", "m synced true true true", "n synced true true true", "never awaited false false true")
	f.changes(true, "2", []string{"n"}, "m")
	f.changes(false, "2", nil, "b")
	is("some not sent", "a unacked true true true", "b unsent true true false", "gone synced false false true", "m unsent true true false", "n stays true false false", "never awaited false false true")
	f.answers("no")
	f.sends()
	f.answers("")
	is("rejected", "a rejected true true true", "b synced true true true", "gone synced false false true", "m synced true true true", "never awaited false false true")

	var paged []string
	for after, more := "", true; more; {
		var page []ClientName
		page, more = f.s.Names(cache.Cluster, after, 2)
		for _, n := range page {
			paged, after = append(paged, n.Name), n.Name
		}
	}
	if want := []string{"a", "b", "gone", "m", "never"}; !slices.Equal(paged, want) {
		t.Errorf("in pages: %q, want %q", paged, want)
	}
}

// TestWholeSet: a client that has accepted the wildcard's set as it is, and nothing else, is known by the set alone, which all
// such clients share.
func TestWholeSet(t *testing.T) {
	f := follow(t, "*")
	is := func(what string, whole bool) {
		t.Helper()
		set := f.s.WholeSet(cache.Cluster)
		if again := f.s.WholeSet(cache.Cluster); (set != nil) != whole || again != set {
			t.Errorf("%s: the set is %v, and then %v", what, set, again)
		}
		for _, broken := range f.s.Check() {
			t.Errorf("%s: %s", what, broken)
		}
		all, _ := f.s.AllNames(cache.Cluster, nil, nil)
		if whole && len(all) != len(set.Resources) {
			t.Errorf("%s: it has %v, and the set %v", what, all, set.Resources)
		}
	}
	is("there is nothing", true)
	f.changes(true, "1", nil, "m", "n")
	is("it waits", false)
	f.sends()
	is("it is not acknowledged", false)
	f.answers("")
	is("it is accepted", true)
	f.changes(true, "2", []string{"n"}, "m")
	is("a change waits", false)
	f.sends()
	f.answers("")
	is("it is accepted", true)
	f.changes(true, "3", []string{"m"}, "o")
	is("a removal waits", false)
	f.sends()
	f.answers("")
	is("it is accepted, too", true)
	f.ask(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a"}})
	is("it asks for a name, too", false)
	f.ask(&discovery.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{"a"}})
	f.sends()
	f.answers("")
	is("it asks for none any more", true)
	f.changes(true, "4", nil, "o")
	f.sends()
	f.answers("no")
	is("it is rejected", false)
}
