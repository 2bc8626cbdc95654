package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// TestTheListHasThoseWhoAskedFirst: whatever is asked for and given up, the list has the names that
// were asked for first, as many as fit, on one stream after another (UP-17, UP-21).
func TestTheListHasThoseWhoAskedFirst(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		list, on := &nameList{places: make(map[string]place)}, make(map[string]bool)
		var order []string // names that are wanted, by when they were asked for
		room := 100 + r.IntN(200)
		list.begin(nil, room)
		for range 200 {
			var want, drop []string
			for range r.IntN(6) {
				if len(order) > 0 && r.IntN(2) == 0 {
					i := r.IntN(len(order))
					drop = append(drop, order[i])
					delete(on, order[i])
					order = slices.Delete(order, i, i+1)
				}
			}
			for range r.IntN(6) {
				if name := strings.Repeat(string(rune('a'+r.IntN(26))), 1+r.IntN(30)); !slices.Contains(order, name) && !slices.Contains(drop, name) {
					want, order = append(want, name), append(order, name)
				}
			}
			if r.IntN(10) == 0 { // a new stream, on which there may be another limit
				room = 100 + r.IntN(200)
				clear(on)
				for _, name := range drop {
					list.drop(name)
				}
				list.change(want, nil) // the order in which they came
				for _, name := range list.begin(slices.Sorted(slices.Values(order)), room) {
					on[name] = true
				}
			} else {
				for _, name := range list.change(want, drop) {
					on[name] = true
				}
			}
			left := room
			for i, name := range order {
				left -= nameSize(name)
				if fits := i == 0 || left >= 0; fits != on[name] || fits == list.leavesOut(name) {
					t.Fatalf("seed %d: of %q, of %d bytes, %q is on the list: %v", seed, order, room, name, on[name])
				}
				if left < 0 {
					left = -1 << 20 // nobody overtakes a name that waits
				}
			}
			if len(list.waiting) > 2*list.out+few {
				t.Fatalf("seed %d: %d names wait, and %d are kept", seed, list.out, len(list.waiting))
			}
		}
	}
}

// TestALongListIsCutDown: a SotW control plane that refuses a long list is sent a shorter one, without
// the names that were asked for last; one that has answered it has refused something else (UP-17).
func TestALongListIsCutDown(t *testing.T) {
	bounds := DefaultBounds
	bounds.MinRequest = 500
	d := newDesk(t, Config{Dialect: Dialect{MaxRequest: 4000}, Bounds: &bounds, Entries: []Entry{{Name: "up", Mode: ModeSotW}}})
	names := func(of string, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("%s-%03d", of, i))
		}
		return all
	}
	longest := func(all []proto.Message) (size int, listed []string) {
		for _, m := range all {
			if n := proto.Size(m); n > size {
				size, listed = n, m.(*discovery.DiscoveryRequest).GetResourceNames()
			}
		}
		return size, listed
	}
	victim := d.hub.Subscribe(cache.Endpoint, fanout.NewSubscriber(func() {}))
	victim.Delta([]string{"zz-victim"}, nil, d.now)
	d.settle()
	other := d.hub.Subscribe(cache.Endpoint, fanout.NewSubscriber(func() {}))
	other.Delta(names("a", 1000), nil, d.now)
	if size, _ := longest(d.settle()); size < 3000 || size > 4000 {
		t.Fatalf("a request of %d bytes was written, of 4000", size)
	}
	all, notices := d.end(End{Kind: EndExhausted})
	size, listed := longest(all)
	if size > 2000 || !slices.Contains(listed, "zz-victim") || len(notices) != 1 || !strings.Contains(notices[0], "left out") {
		t.Errorf("then one of %d bytes, with the victim: %v; the log says %q", size, slices.Contains(listed, "zz-victim"), notices)
	}
	resp := &discovery.DiscoveryResponse{TypeUrl: string(cache.Endpoint), Nonce: "n", VersionInfo: "1"}
	r := Decode(resp, cache.Fingerprint{})
	d.core.Receive(d.id, r, d.now)
	d.core.Applied(d.id, r, d.now)
	d.settle()
	all, notices = d.end(End{Kind: EndExhausted})
	if again, _ := longest(all); again < size-100 || len(notices) > 0 {
		t.Errorf("after an answer one of %d bytes, and not of %d; the log says %q", again, size, notices)
	}
}

// BenchmarkTheListIsFull: what a change of one name costs beside 200,000 that are left out.
func BenchmarkTheListIsFull(b *testing.B) {
	list := &nameList{places: make(map[string]place)}
	list.begin(nil, 1<<20)
	var all []string
	for i := range 300_000 {
		all = append(all, fmt.Sprintf("name-%d", i))
	}
	list.change(all, nil)
	i := 0
	for b.Loop() {
		i++
		name := []string{fmt.Sprint(i)}
		list.change(name, nil)
		list.news = nil
		list.change(nil, name)
	}
}

// TestTheListOutlivesItsNames: names that come after all others were given up are asked for.
func TestTheListOutlivesItsNames(t *testing.T) {
	d := newDesk(t, Config{Entries: []Entry{{Name: "up", Mode: ModeSotW}}})
	client := d.hub.Subscribe(cache.Endpoint, fanout.NewSubscriber(func() {}))
	client.Delta([]string{"a"}, nil, d.now)
	d.settle()
	client.Delta(nil, []string{"a"}, d.now)
	d.settle()
	client.Delta([]string{"b", "c"}, nil, d.now)
	all := d.settle()
	if len(all) != 1 || len(all[0].(*discovery.DiscoveryRequest).GetResourceNames()) != 2 {
		t.Errorf("%v is asked for", all)
	}
}
