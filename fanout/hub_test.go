package fanout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

const typ = cache.Cluster

var (
	byName = Lane{Type: typ}
	all    = Lane{Type: typ, Wildcard: true}
	epoch  = time.Unix(1, 0)
)

func newHub() *Hub { return NewHub(Config{Linger: time.Second, MaxLinger: 10}) }

// TestForgottenTypesCostNothing: a type that clients once asked for leaves nothing
// behind.
func TestForgottenTypesCostNothing(t *testing.T) {
	h := newHub()
	for i := range 1000 {
		typ := cache.TypeURL(fmt.Sprint("strange.", i))
		s := h.Subscribe(typ, NewSubscriber(func() {}))
		s.Delta([]string{"a", Wildcard}, nil, epoch)
		changes(h)
		h.Apply(Lane{Type: typ}, set("a"))
		h.Apply(Lane{Type: typ, Wildcard: true}, set("a"))
		h.Of(typ).SetSuspect(i%2 == 0)
		s.Close(epoch)
		h.Expire(epoch.Add(time.Hour))
		changes(h)
		h.Of(typ).SetSuspect(false) // acquitted when nobody is left
	}
	if n := len(h.types.indexes); n != 0 {
		t.Errorf("%d types are left", n)
	}
}

func set(names ...string) *cache.Update {
	u := &cache.Update{}
	for _, name := range names {
		r := cache.NewResource("T", &discovery.Resource{
			Name: name, Resource: &anypb.Any{TypeUrl: "T", Value: fmt.Appendf(nil, "%s %d", name, version.Add(1))},
		}, cache.Fingerprint{})
		u.Set = append(u.Set, cache.Received{Resource: r, Upstream: "u"})
	}
	return u
}

var version atomic.Uint64

// TestUnaskedIsNotKept: resources that nobody asked for are dropped, and cost nothing (UP-9).
func TestUnaskedIsNotKept(t *testing.T) {
	h := newHub()
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	s.Delta([]string{"a"}, nil, epoch)
	h.Apply(byName, set("a", "b"))
	if n := h.types.of(h, typ).named.Len(); n != 1 {
		t.Errorf("%d resources are kept, want 1", n)
	}
}

// TestMailboxIsBounded: a client that never looks costs its names, however much
// changes (H-12).
func TestMailboxIsBounded(t *testing.T) {
	h := newHub()
	wakes := 0
	m := NewSubscriber(func() { wakes++ })
	s := h.Subscribe(typ, m)
	s.Delta([]string{"a", "b"}, nil, epoch)
	for range 10_000 {
		h.Apply(byName, set("a", "b"))
	}
	if n := cap(s.marks.Content); n > 200 {
		t.Errorf("the mailbox of 2 names has grown to %d", n)
	}
	if wakes != 1 {
		t.Errorf("woken %d times without having looked, want once", wakes)
	}
	if dirty := m.Take(); len(dirty) != 1 || dirty[0] != s {
		t.Fatalf("marked: %v, want the one subscription", dirty)
	}
	s.Read(func(v View) {
		got := v.Marks().Content
		slices.Sort(got)
		if ids := slices.Compact(got); len(ids) != 2 {
			t.Errorf("marked: %v, want both names", ids)
		}
	})
}

// TestTombstonesArePruned: names that come and go do not pile up once every reader
// has been told, and are remembered until then (H-42).
func TestTombstonesArePruned(t *testing.T) {
	h := newHub()
	tombstones := func() int { return h.types.of(h, typ).wildcard.Tombstones() }
	gone := func(s *Subscription, after cache.Seq) (n int) {
		s.Read(func(v View) {
			for c := range v.Set().Since(after) {
				if c.Resource == nil {
					n++
				}
			}
		})
		return n
	}
	wildcard := func() *Subscription {
		s := h.Subscribe(typ, NewSubscriber(func() {}))
		s.Delta([]string{Wildcard}, nil, epoch)
		return s
	}
	told := func(s *Subscription) { s.Read(func(v View) { v.Set().Passed(v.Position()) }) }

	wildcard() // it asks nothing but whether the set is complete
	quick, slow, fresh := wildcard(), wildcard(), wildcard()
	told(quick)
	told(slow)
	for i := range 10_000 {
		name := fmt.Sprint(i)
		h.Apply(all, set(name))
		h.Apply(all, &cache.Update{Removed: []string{name}})
		told(quick)
	}
	if n := gone(slow, 0); n != 10_000 {
		t.Errorf("%d names are remembered as gone for one who was told of none, want all 10000", n)
	}
	told(fresh)
	h.Apply(all, set("one"))
	h.Apply(all, &cache.Update{Removed: []string{"one"}})
	told(quick)
	told(slow)
	if n := gone(fresh, 0); n != 1 {
		t.Errorf("%d names are remembered as gone, want the one of which one client was not told", n)
	}
	told(fresh)
	for i := range 10_000 {
		name := fmt.Sprint(i)
		h.Apply(all, set(name))
		h.Apply(all, &cache.Update{Removed: []string{name}})
		told(quick)
		told(fresh)
	}
	slow.Close(epoch)
	if n := tombstones(); n > DefaultBounds.Tombstones(0) {
		t.Errorf("%d tombstones are left when the last who was to be told has gone", n)
	}
	for i := range 10_000 {
		h.Apply(all, set(fmt.Sprint(i)))
	}
	told(fresh)
	h.Apply(all, &cache.Update{Full: true})
	told(quick)
	told(fresh)
	if n := tombstones(); n > DefaultBounds.Tombstones(0) {
		t.Errorf("%d tombstones are left though nothing has come since all were told", n)
	}
}

// TestLingerIsBounded: names that nobody wants are given up when there are too
// many, the longest unwanted first (UP-7).
func TestLingerIsBounded(t *testing.T) {
	h := newHub()
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("%02d", i))
	}
	s.Delta(names, nil, epoch)
	changes(h)
	h.Apply(byName, set(names...))
	s.Delta(nil, names, epoch)
	change := changes(h)[byName]
	slices.Sort(change.Drop)
	if !slices.Equal(change.Drop, names[:20]) {
		t.Errorf("given up: %v, want the first 20", change.Drop)
	}
	if n := h.types.of(h, typ).named.Len(); n != 10 {
		t.Errorf("%d resources are kept, want those of the 10 that linger", n)
	}
	if next := h.Expire(epoch.Add(time.Second)); !next.IsZero() {
		t.Errorf("something lingers until %v", next)
	}
	if change := changes(h)[byName]; len(change.Drop) != 10 {
		t.Errorf("given up in time: %v, want 10", change.Drop)
	}
	s.Close(epoch)
	if x := h.types.of(h, typ); x.named.Len() != 0 || len(h.Lanes()) != 0 {
		t.Errorf("left: %d resources, lanes %v", x.named.Len(), h.Lanes())
	}
}

// TestResumeForgetsWhatWasGivenUp: a stream that begins before upstream hears that a name was given
// up does not ask for the name. Nothing keeps its resource up to date, so it is forgotten (UP-8).
func TestResumeForgetsWhatWasGivenUp(t *testing.T) {
	h := newHub()
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	s.Delta([]string{"a", "b"}, nil, epoch)
	changes(h)
	h.Apply(byName, set("a", "b"))
	s.Delta(nil, []string{"b"}, epoch)
	h.Expire(epoch.Add(time.Hour))
	names, _ := h.On(byName).Resume(cache.Origin{}, 2, func(cache.Origin) bool { return true })
	if !slices.Equal(names, []string{"a"}) {
		t.Errorf("asked for: %v, want a", names)
	}
	s.Delta([]string{"b"}, nil, epoch)
	if i := changes(h)[byName]; h.On(byName).Has("b") || !slices.Equal(i.Want, []string{"b"}) {
		t.Errorf("b is there: %v, wanted again: %v", h.On(byName).Has("b"), i.Want)
	}
}

// TestManyAtOnce lets clients come and go while upstream speaks, for the race
// detector, and ends with everybody knowing the same.
func TestManyAtOnce(t *testing.T) {
	h := newHub()
	var work sync.WaitGroup
	stop := make(chan struct{})
	for lane := range 2 {
		work.Go(func() {
			random := rand.New(rand.NewPCG(uint64(lane), 0))
			for {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprint(random.IntN(20))
				u := set(name)
				if random.IntN(4) == 0 {
					u = &cache.Update{Removed: []string{name}}
				}
				h.Apply(Lane{Type: typ, Wildcard: lane == 0}, u)
				changes(h)
			}
		})
	}
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(uint64(c), 1))
			wake := make(chan struct{}, 1)
			m := NewSubscriber(func() {
				select {
				case wake <- struct{}{}:
				default:
				}
			})
			for range 50 {
				s := h.Subscribe(typ, m)
				for range 10 {
					names := []string{fmt.Sprint(random.IntN(20)), Wildcard}
					s.Delta(names[:random.IntN(3)], names[random.IntN(2):], epoch)
					s.Replace(Names{Some: true, Wildcard: true, Added: names[:1]}, epoch)
					s.Replace(Names{Some: true, Gone: []string{fmt.Sprint(random.IntN(20))}}, epoch)
					for _, s := range m.Take() {
						s.Read(func(v View) {
							for _, id := range v.Marks().Content {
								if v.Has(id) {
									v.Answer(id)
								}
							}
							for range v.Set().Since(0) {
							}
						})
					}
				}
				s.Close(epoch)
			}
		})
	}
	clients.Wait()
	close(stop)
	work.Wait()
	h.Expire(epoch.Add(time.Hour))
	changes(h)
	if x := h.types.of(h, typ); x.interest.subscriptions != 0 || x.named.Len() != 0 || x.wildcard.Len() != 0 || x.interest.names != 0 {
		t.Errorf("nobody is left, but %d and %d resources are, and %d wanted names", x.named.Len(), x.wildcard.Len(), x.interest.names)
	}
}

// changes are taken by streams that carry everything.
func changes(h *Hub) map[Lane]Interest {
	all, _ := h.Changes(time.Time{}, func(Lane) (Carrier, bool) { return Carrier{}, true })
	return all
}

// TestMailboxLosesNothing: what is marked once stays marked, however often the others change
// before the client looks (H-12, G3).
func TestMailboxLosesNothing(t *testing.T) {
	h := newHub()
	m := NewSubscriber(func() {})
	s := h.Subscribe(typ, m)
	names := []string{"a", "b", "c", "d"}
	s.Delta(names, nil, epoch)
	for round := range 100 {
		for i, often := range names {
			once := names[(i+1+round%3)%len(names)]
			h.Apply(byName, set(once))
			for range 3 * (2*len(names) + 16) { // more than a mailbox may hold
				h.Apply(byName, set(often))
			}
			m.Take()
			s.Read(func(v View) {
				marked := make(map[string]bool)
				for _, id := range v.Marks().Content {
					marked[v.Name(id)] = true
				}
				if len(marked) != 2 || !marked[once] || !marked[often] {
					t.Fatalf("marked: %v, want %s and %s", marked, once, often)
				}
			})
		}
	}
}

// TestAWildcardThatWasGivenUpIsNotComplete: what arrives for a wildcard after it was given up, and
// before upstream hears of that, does not make its set complete. Otherwise the next client that
// asks would be sent an empty set (UP-8, H-32).
func TestAWildcardThatWasGivenUpIsNotComplete(t *testing.T) {
	h := NewHub(Config{})
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	s.Delta([]string{Wildcard}, nil, epoch)
	changes(h)
	h.Apply(all, set("a"))
	s.Delta(nil, []string{Wildcard}, epoch)
	changes(h)
	h.Apply(all, set("b"))
	h.Apply(all, &cache.Update{Synced: true})
	s.Delta([]string{Wildcard}, nil, epoch)
	if h.Of(typ).Synced() || h.On(all).Len() > 0 {
		t.Errorf("complete: %v, and has %d resources; nothing has been asked for again yet", h.Of(typ).Synced(), h.On(all).Len())
	}
}

// hubWithFallback returns a Hub in which a name resolves to a member of the wildcard's set. The wildcard has just been given up, which
// upstream has not been told yet.
func hubWithFallback() *Hub {
	h := NewHub(Config{})
	s, named := h.Subscribe(typ, NewSubscriber(func() {})), h.Subscribe(typ, NewSubscriber(func() {}))
	s.Delta([]string{Wildcard}, nil, epoch)
	named.Delta([]string{"a"}, nil, epoch)
	changes(h)
	h.Apply(all, set("a"))
	s.Delta(nil, []string{Wildcard}, epoch)
	return h
}

// TestFallbacksThatEndAreTakenWithTheWildcard: the lane of names may be asked for before the next call,
// and would then be asked for once more (WILD-11).
func TestFallbacksThatEndAreTakenWithTheWildcard(t *testing.T) {
	h := hubWithFallback()
	if taken := changes(h); !slices.Equal(taken[byName].Again, []string{"a"}) {
		t.Errorf("taken: %v; want a to be asked for again", taken)
	}
}

// TestFallbacksThatEndAreTakenWithTheWildcardThoughItWaited: changes of the wildcard's lane were still
// gathered when those of names were not (UP-6).
func TestFallbacksThatEndAreTakenWithTheWildcardThoughItWaited(t *testing.T) {
	h := hubWithFallback()
	gathers := func(lane Lane) (c Carrier, carried bool) {
		if lane == all {
			c.Until = epoch.Add(time.Second)
		}
		return c, true
	}
	if taken, later := h.Changes(epoch, gathers); len(taken[all].Drop) > 0 || !later.Equal(epoch.Add(time.Second)) {
		t.Fatalf("taken: %v, later %v", taken, later)
	}
	woken := false
	h.Wanted().OnWake(func() { woken = true })
	taken, later := h.Changes(epoch.Add(time.Second), gathers)
	if !slices.Equal(taken[byName].Again, []string{"a"}) {
		t.Errorf("taken: %v; want a to be asked for again; pending %v, later %v, woken %v", taken, h.Wanted().Pending(), later, woken)
	}
}

// TestChangesInParts: very many names are taken in parts. What the wildcard leaves to names is taken with it (UP-17).
func TestChangesInParts(t *testing.T) {
	names := []string{"d", "b", "g", "a", "f", "c", "e"}
	for most, want := range map[int][][]string{0: {names}, 3: {names[:3], names[3:6], names[6:]}, 7: {names}} {
		h := NewHub(Config{})
		h.Subscribe(typ, NewSubscriber(func() {})).Delta(names, nil, epoch)
		var parts [][]string
		for more := true; more; {
			taken, later := h.Changes(epoch, func(Lane) (Carrier, bool) { return Carrier{Most: most}, true })
			parts, more = append(parts, taken[byName].Want), taken[byName].More
			if more != h.Wanted().Pending() || more != later.Equal(epoch) {
				t.Fatalf("of %d: more: %v, pending: %v, later: %v", most, more, h.Wanted().Pending(), later)
			}
		}
		if !slices.EqualFunc(parts, want, slices.Equal) {
			t.Errorf("of %d: %q were taken, want %q", most, parts, want)
		}
	}

	h := NewHub(Config{})
	s, named := h.Subscribe(typ, NewSubscriber(func() {})), h.Subscribe(typ, NewSubscriber(func() {}))
	s.Delta([]string{Wildcard}, nil, epoch)
	named.Delta(names, nil, epoch)
	taken, _ := h.Changes(epoch, func(Lane) (Carrier, bool) { return Carrier{Most: 3}, true })
	if len(taken[byName].Want) != len(names) {
		t.Errorf("with the wildcard %q are taken, want all", taken[byName].Want)
	}
}

// TestUnasked: a request is told for how many of its names upstream has to be asked, in parts, too.
func TestUnasked(t *testing.T) {
	bounds := DefaultBounds
	bounds.Part = 2
	h := NewHub(Config{Bounds: &bounds})
	ask := func(want int, names ...string) *Subscription {
		t.Helper()
		s := h.Subscribe(typ, NewSubscriber(func() {}))
		if got := s.Delta(names, nil, epoch).Unasked; got != want {
			t.Errorf("%q: upstream has to be asked for %d, want %d", names, got, want)
		}
		return s
	}
	ask(5, "a", "b", "c", "d", "e")
	ask(1, "e", "f", "a")
	leaves := ask(2, "g", "h")
	h.On(byName).Asked([]string{"g"})
	leaves.Close(epoch)
	ask(1, "g", "h") // g is subscribed upstream still
	sotw := h.Subscribe(typ, NewSubscriber(func() {}))
	if got := sotw.Replace(Names{Some: true, Added: []string{"a", "i", "j", "k"}}, epoch).Unasked; got != 3 {
		t.Errorf("over SotW upstream has to be asked for %d, want 3", got)
	}
	sotw.Read(func(v View) {
		if n := len(v.Names()); n != 4 {
			t.Errorf("%d names are subscribed to, want 4", n)
		}
	})
}

// TestAbsences: what is absent is news once for each stream, however many names stay so. A name that nobody wants is
// when somebody does (UP-19).
func TestAbsences(t *testing.T) {
	h := newHub()
	s := h.Subscribe(typ, NewSubscriber(func() {}))
	names := []string{"a", "b", "c", "alias"}
	s.Delta(names, nil, epoch)
	changes(h)
	h.On(byName).Asked(names)
	removed := func(names ...string) *cache.Update { return &cache.Update{Removed: names, At: epoch} }
	expect := func(what string, all bool, absent, others []string) {
		t.Helper()
		gotAbsent, gotOthers, more := h.Of(typ).Absences(all, 2)
		for more {
			var a, o []string
			a, o, more = h.Of(typ).Absences(false, 2)
			gotAbsent, gotOthers = append(gotAbsent, a...), append(gotOthers, o...)
		}
		if !slices.Equal(gotAbsent, absent) || !slices.Equal(gotOthers, others) {
			t.Errorf("%s: %q are absent, and %q not any more; want %q and %q", what, gotAbsent, gotOthers, absent, others)
		}
	}
	h.Apply(byName, removed("a", "b", "alias"))
	expect("new", false, []string{"a", "b", "alias"}, nil)
	h.Apply(byName, removed("a", "c"))
	expect("one more", false, []string{"c"}, nil)
	expect("a new stream", true, names, nil)
	h.Apply(byName, set("a"))
	target := set("target")
	target.Set[0].Aliases = []string{"alias"}
	h.Apply(byName, target)
	expect("answered, by name and alias", false, nil, []string{"a", "alias"})
	s.Delta(nil, []string{"c"}, epoch)
	h.Apply(byName, removed("a", "target"))
	expect("gone again", false, []string{"a", "alias"}, nil)
	expect("nobody wants c", true, []string{"a", "b", "alias"}, nil)
	s.Delta([]string{"c"}, nil, epoch)
	expect("somebody does", false, []string{"c"}, nil)
}
