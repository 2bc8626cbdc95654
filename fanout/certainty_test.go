package fanout

import (
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// TestVerdict: what is known of a name, for who came with a copy of it and who did not
// (protocol.md §0).
func TestVerdict(t *testing.T) {
	const stream = 7
	from := func(u *cache.Update) *cache.Update { u.Stream = stream; return u }
	for _, test := range []struct {
		name           string
		said           []*cache.Update
		nobody, bearer Resolution
	}{
		{"nothing", nil, Pending, Pending},
		{"a copy", []*cache.Update{set("a")}, Present, Present},
		{"a removal", []*cache.Update{{Removed: []string{"a"}}}, Absent, Absent},
		{"an error that is an answer", []*cache.Update{{Errors: []cache.Error{{Name: "a", Status: &statuspb.Status{Code: 7}}}}}, Errored, Errored},
		{"an error that is none", []*cache.Update{{Errors: []cache.Error{{Name: "a", Status: &statuspb.Status{Code: cache.Unavailable}}}}}, Pending, Pending},
		{"a fault", []*cache.Update{from(&cache.Update{Malformed: []string{"a"}})}, Pending, InDoubt},
		{"a fault of a name nobody can read", []*cache.Update{from(&cache.Update{Unreadable: true})}, Pending, Pending},
		{"which may be this one", []*cache.Update{from(&cache.Update{Unreadable: true}), from(&cache.Update{Missing: []string{"a"}})}, Absent, InDoubt},
		{"until another stream is silent, too", []*cache.Update{{Stream: 1, Unreadable: true}, {Stream: 1, Missing: []string{"a"}}, from(&cache.Update{Missing: []string{"a"}})}, Absent, Absent},
		{"a fault, and the timer of that stream", []*cache.Update{from(&cache.Update{Malformed: []string{"a"}}), from(&cache.Update{Missing: []string{"a"}})}, Pending, InDoubt},
		{"a fault, and the timer of another", []*cache.Update{{Stream: 1, Malformed: []string{"a"}}, from(&cache.Update{Missing: []string{"a"}})}, Absent, Absent},
		{"a fault, and then an answer", []*cache.Update{from(&cache.Update{Malformed: []string{"a"}}), from(&cache.Update{Removed: []string{"a"}})}, Absent, Absent},
		{"a fault of a name that has a copy", []*cache.Update{set("a"), from(&cache.Update{Malformed: []string{"a"}})}, Present, Present},
		{"silence", []*cache.Update{from(&cache.Update{Missing: []string{"a"}})}, Absent, Absent},
		{"silence of a mute stream", []*cache.Update{from(&cache.Update{Missing: []string{"a"}, Unproven: true})}, Absent, InDoubt},
		{"which then speaks of the type", []*cache.Update{from(&cache.Update{Missing: []string{"a"}, Unproven: true}), from(&cache.Update{First: true})}, Absent, Absent},
		{"while another speaks of it", []*cache.Update{from(&cache.Update{Missing: []string{"a"}, Unproven: true}), {Stream: 9, First: true}}, Absent, InDoubt},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHub()
			s := h.Subscribe(typ, NewSubscriber(func() {}))
			s.Delta([]string{"a"}, nil, epoch)
			changes(h)
			h.On(byName).Asked([]string{"a"})
			for _, u := range test.said {
				h.Apply(byName, u)
			}
			s.Read(func(v View) {
				id, _ := v.Lookup("a")
				if nobody, bearer := v.Resolution(id, false), v.Resolution(id, true); nobody != test.nobody || bearer != test.bearer {
					t.Errorf("%d, and for who came with a copy %d; want %d and %d", nobody, bearer, test.nobody, test.bearer)
				}
			})
		})
	}
}

// TestSetVerdict is the same of the wildcard's set.
func TestSetVerdict(t *testing.T) {
	h := newHub()
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	s.Delta([]string{Wildcard}, nil, epoch)
	changes(h)
	want := func(what string, nobody, bearer Resolution) {
		t.Helper()
		s.Read(func(v View) {
			if a, b := v.Set().Resolution(false), v.Set().Resolution(true); a != nobody || b != bearer {
				t.Errorf("%s: %d, and for who came with something %d; want %d and %d", what, a, b, nobody, bearer)
			}
		})
	}
	want("nothing", Pending, Pending)
	h.Apply(all, &cache.Update{Stream: 1, Malformed: []string{"x"}, Synced: true})
	want("complete, with a fault", Present, InDoubt)
	h.Apply(all, &cache.Update{Stream: 1, Synced: true})
	want("the stream of the fault says no more", Present, InDoubt)
	h.Apply(all, &cache.Update{Stream: 2, Malformed: []string{"y"}, Synced: true})
	want("another with a fault", Present, InDoubt)
	h.Apply(all, &cache.Update{Stream: 3, Synced: true})
	want("a sound one", Present, Present)
}

// TestAnAnswerToAnAliasEndsItsSilence: a name whose timer ran out on a mute stream is no longer in
// doubt once a resource has answered to it as an alias, so its removal is believed (MISS-4).
func TestAnAnswerToAnAliasEndsItsSilence(t *testing.T) {
	h := newHub()
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	id := s.Delta([]string{"alias"}, nil, epoch).Names[0]
	h.Apply(byName, &cache.Update{Stream: 1, Missing: []string{"alias"}, Unproven: true})
	verdict := func() (d Resolution) {
		s.Read(func(v View) { d = v.Resolution(id, true) })
		return d
	}
	if d := verdict(); d != InDoubt {
		t.Fatalf("after a mute stream the verdict is %v, want InDoubt", d)
	}

	u := set("a")
	u.Stream = 2
	u.Set[0].Resource = cache.NewResource("T", &discovery.Resource{
		Name: "a", Aliases: []string{"alias"}, Resource: &anypb.Any{TypeUrl: "T"},
	}, cache.Fingerprint{})
	h.Apply(byName, u)
	h.Apply(byName, &cache.Update{Stream: 2, Removed: []string{"a"}})
	if d := verdict(); d != Absent {
		t.Errorf("after the removal the verdict is %v, want Absent", d)
	}
}
