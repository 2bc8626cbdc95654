package session

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// desk is a Core and the control plane that it speaks to, of one stream at a time.
type desk struct {
	t    testing.TB
	now  time.Time
	hub  *fanout.Hub
	core *Core
	id   StreamID
}

func newDesk(t testing.TB, c Config) *desk {
	c.Node = &core.Node{Id: "relay", UserAgentName: strings.Repeat("r", 50)}
	c.SendNodeAlways = true
	c.Backoff = Backoff{Initial: time.Second, Factor: 1, Max: time.Second}
	c.Missing, c.MissingExplicit = time.Hour, time.Hour
	hub := fanout.NewHub(fanout.Config{})
	return &desk{t: t, now: time.Unix(1000, 0), hub: hub, core: NewCore(c, hub, func() float64 { return 0.5 })}
}

// settle lets the relay do what is due, and returns what it writes.
func (d *desk) settle() (all []proto.Message) {
	d.t.Helper()
	d.core.Interest(d.now)
	open, _ := d.core.Tick(d.now)
	for _, o := range open {
		d.id = o.ID
		d.core.Opened(d.id, d.now)
	}
	for req := d.core.Next(d.id, d.now); req != nil; req = d.core.Next(d.id, d.now) {
		if len(all) > 10000 {
			d.t.Fatal("there is no end to what is written")
		}
		all = append(all, req)
	}
	return all
}

// answer answers names of a type, and returns what is written then.
func (d *desk) answer(t cache.TypeURL, names []string) []proto.Message {
	resp := &discovery.DeltaDiscoveryResponse{TypeUrl: string(t), Nonce: "n"}
	for _, name := range names {
		resp.Resources = append(resp.Resources, &discovery.Resource{
			Name: name, Version: strings.Repeat("v", len(name)%150), Resource: &anypb.Any{TypeUrl: string(t), Value: []byte(name)},
		})
	}
	r := Decode(resp, cache.Fingerprint{})
	d.core.Receive(d.id, r, d.now)
	for _, e := range d.core.Effects() {
		e.Apply(d.hub)
	}
	d.core.Applied(d.id, r, d.now)
	return d.settle()
}

// end ends the stream, and returns what is written on the next, and what the log says.
func (d *desk) end(end End) (all []proto.Message, notices []string) {
	d.core.Ended(d.id, end, d.now)
	d.now = d.now.Add(time.Minute)
	all = d.settle()
	for _, e := range d.core.Effects() {
		if e, ok := e.(Notice); ok {
			notices = append(notices, e.Text)
		}
	}
	return all, notices
}

// asked is what Delta requests ask for and give up in all; none is longer than limit, and
// only the first has versions, of names that it lists itself.
func (d *desk) asked(all []proto.Message, limit int) (subscribe, unsubscribe []string, versions int) {
	d.t.Helper()
	for i, m := range all {
		req := m.(*discovery.DeltaDiscoveryRequest)
		if n := proto.Size(req); n > limit {
			d.t.Errorf("request %d of %d has %d bytes, and may have %d", i+1, len(all), n, limit)
		}
		if len(req.GetResourceNamesSubscribe())+len(req.GetResourceNamesUnsubscribe()) == 0 && req.GetResponseNonce() == "" {
			d.t.Errorf("request %d of %d says nothing", i+1, len(all))
		}
		for name := range req.GetInitialResourceVersions() {
			if i > 0 || !slices.Contains(req.GetResourceNamesSubscribe(), name) {
				d.t.Errorf("request %d of %d shows a version of %q, and does not list it", i+1, len(all), name)
			}
		}
		subscribe = append(subscribe, req.GetResourceNamesSubscribe()...)
		unsubscribe = append(unsubscribe, req.GetResourceNamesUnsubscribe()...)
		versions += len(req.GetInitialResourceVersions())
	}
	return subscribe, unsubscribe, versions
}

// TestNoRequestIsTooLong: whatever is asked for, given up, shown and asked for again, no
// request is longer than the limit, and all is said, once (UP-17).
func TestNoRequestIsTooLong(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		limit := 600 + r.IntN(3000)
		d := newDesk(t, Config{Dialect: Dialect{MaxRequest: limit}, Entries: []Entry{{Name: "up", Mode: ModeDelta}}})
		client := d.hub.Subscribe(cache.Endpoint, fanout.NewSubscriber(func() {}))
		wanted := make(map[string]bool)
		change := func(i int) {
			var more, fewer []string
			for n := range r.IntN(200) {
				name := fmt.Sprintf("%d-%d-%s", i, n, strings.Repeat("x", r.IntN(200)))
				more, wanted[name] = append(more, name), true
			}
			for name := range wanted {
				if r.IntN(3) == 0 && !slices.Contains(more, name) {
					fewer = append(fewer, name)
					delete(wanted, name)
				}
			}
			client.Delta(more, fewer, d.now)
		}
		subscribed := make(map[string]bool)
		hears := func(all []proto.Message) (versions int) {
			t.Helper()
			subscribe, unsubscribe, versions := d.asked(all, limit)
			for _, name := range unsubscribe {
				if !subscribed[name] {
					t.Errorf("seed %d: %q is given up, and was not asked for", seed, name)
				}
				delete(subscribed, name)
			}
			for _, name := range subscribe {
				if subscribed[name] {
					t.Errorf("seed %d: %q is asked for twice", seed, name)
				}
				subscribed[name] = true
			}
			if !maps.Equal(subscribed, wanted) {
				t.Errorf("seed %d: %d names are subscribed, %d wanted", seed, len(subscribed), len(wanted))
			}
			return versions
		}
		for i := range 3 {
			change(i)
			hears(d.settle())
		}
		hears(d.answer(cache.Endpoint, slices.Sorted(maps.Keys(wanted))))
		clear(subscribed)
		all, _ := d.end(End{Message: "gone"})
		if versions := hears(all); versions == 0 && len(wanted) > 0 || versions > d.hub.On(fanout.Lane{Type: cache.Endpoint}).Len() {
			t.Errorf("seed %d: %d versions are shown of %d", seed, versions, len(wanted))
		}
		if t.Failed() {
			return
		}
	}
}

// TestRefusedForItsLength: after a long request RESOURCE_EXHAUSTED makes those that follow
// at most half as long, down to 64 KiB, and convicts nobody, whether the limit was near
// or far. After short ones it is a status like any other (UP-17, H-39).
func TestRefusedForItsLength(t *testing.T) {
	refused := End{Kind: EndExhausted, Message: "grpc: received message larger than max"}
	names := func(n int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf("%0100d", i))
		}
		return names
	}
	longest := func(all []proto.Message) (n int) {
		for _, req := range all {
			n = max(n, proto.Size(req))
		}
		return n
	}
	for _, tt := range []struct {
		mode  Mode
		limit int
	}{{ModeDelta, 256 << 10}, {ModeDelta, 64 << 20}, {ModeSotW, 256 << 10}} {
		d := newDesk(t, Config{Dialect: Dialect{MaxRequest: tt.limit}, Entries: []Entry{{Name: "up", Mode: tt.mode}}})
		d.hub.Subscribe(cache.Endpoint, fanout.NewSubscriber(func() {})).Delta(names(2200), nil, d.now)
		whole := longest(d.settle())
		for i, limit := range []int{whole / 2, 64 << 10, 64 << 10} {
			all, notices := d.end(refused)
			n, least := longest(all), limit-200
			if tt.mode == ModeSotW {
				least -= limit / reserve
			}
			if n > limit || n < least {
				t.Errorf("%+v, end %d: the longest request has %d bytes, the limit is %d", tt, i+1, n, limit)
			}
			if len(notices) != 1 || i == 0 && !strings.Contains(notices[0], fmt.Sprintf(" %d bytes", whole)) {
				t.Errorf("%+v, end %d: the log says %q", tt, i+1, notices)
			}
		}
	}

	d := newDesk(t, Config{Dialect: Dialect{MaxRequest: 256 << 10}, Entries: []Entry{{Name: "up", Mode: ModeDelta}}})
	d.hub.Subscribe(cache.Endpoint, fanout.NewSubscriber(func() {})).Delta(names(500), nil, d.now)
	d.settle()
	if _, notices := d.end(refused); len(notices) != 0 || d.core.entries[0].lowered != 0 || !d.core.suspects.suspected(cache.Endpoint) {
		t.Errorf("after short requests the limit is lowered to %d, and the log says %q", d.core.entries[0].lowered, notices)
	}
}

// TestPending: whatever comes and goes while names are taken in parts, each is taken
// once, and while there are any something is.
func TestPending(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		p, has := newPending(), make(map[string]bool)
		for range 200 {
			name := fmt.Sprint(r.IntN(30))
			switch r.IntN(4) {
			case 0, 1:
				p.add(name)
				has[name] = true
			case 2:
				p.remove(name)
				delete(has, name)
			default:
				names := p.take(&budget{left: r.IntN(40), most: 1 + r.IntN(4)}, func(string) bool { return false })
				if len(has) > 0 && len(names) == 0 || !slices.IsSorted(names) {
					t.Fatalf("seed %d: of %d names it took %q", seed, len(has), names)
				}
				for _, name := range names {
					if !has[name] {
						t.Fatalf("seed %d: took %q, which is not there, or was taken", seed, name)
					}
					delete(has, name)
				}
			}
			if p.len() != len(has) {
				t.Fatalf("seed %d: it has %d names, not %d", seed, p.len(), len(has))
			}
		}
	}
}

// TestAskedAgainInParts: names that are given up and asked for again are all given up
// before, each in an earlier request, however many requests that takes (UP-8, UP-17).
func TestAskedAgainInParts(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		limit := 500 + r.IntN(10000)
		d := newDesk(t, Config{Dialect: Dialect{MaxRequest: limit}, Entries: []Entry{{Name: "up", Mode: ModeDelta}}})
		var names, second []string
		for i := range 100 {
			names = append(names, fmt.Sprint(i, strings.Repeat("x", r.IntN(100))))
		}
		slices.Sort(names)
		d.hub.Subscribe(cache.Endpoint, fanout.NewSubscriber(func() {})).Delta(names, nil, d.now)
		d.settle()
		l := d.core.main.stream.lanes[cache.Endpoint]
		for _, name := range names {
			l.drop.add(name)
			if r.IntN(2) == 0 {
				l.want.add(name)
				second = append(second, name)
			}
		}
		all := d.settle()
		subscribe, unsubscribe, _ := d.asked(all, limit)
		slices.Sort(subscribe)
		if !slices.Equal(subscribe, second) || !slices.Equal(unsubscribe, names) {
			t.Errorf("seed %d: %d of %d names are given up, and %d of %d asked for again", seed, len(unsubscribe), len(names), len(subscribe), len(second))
		}
		givenUp := make(map[string]bool)
		for _, m := range all {
			req := m.(*discovery.DeltaDiscoveryRequest)
			for _, name := range req.GetResourceNamesSubscribe() {
				if !givenUp[name] {
					t.Errorf("seed %d: %s is asked for again, and was not given up before", seed, name)
				}
			}
			for _, name := range req.GetResourceNamesUnsubscribe() {
				givenUp[name] = true
			}
		}
	}
}

// TestChangesInParts: a change of interest lists so many names at most, and those of others have their turn in between
// (UP-17). The rest is not gathered any longer. In SotW each request lists everything, so there is one.
func TestChangesInParts(t *testing.T) {
	bounds := DefaultBounds
	bounds.Part = 30
	d := newDesk(t, Config{Bounds: &bounds, Coalesce: time.Second, Entries: []Entry{{Name: "up", Mode: ModeDelta}}})
	s := d.hub.Subscribe(cache.Endpoint, fanout.NewSubscriber(func() {}))
	s.Delta([]string{"first"}, nil, d.now)
	d.settle()
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint(i))
	}
	for _, give := range []bool{false, true} {
		subscribe, unsubscribe := names, []string(nil)
		if give {
			subscribe, unsubscribe = nil, names
		}
		s.Delta(subscribe, unsubscribe, d.now)
		d.now = d.now.Add(time.Second)
		var all []proto.Message
		for range 4 {
			all = append(all, d.settle()...)
		}
		for _, m := range all {
			req := m.(*discovery.DeltaDiscoveryRequest)
			if n := len(req.GetResourceNamesSubscribe()) + len(req.GetResourceNamesUnsubscribe()); n > bounds.Part {
				t.Errorf("a request lists %d names", n)
			}
		}
		if len(all) != 4 {
			t.Errorf("%d requests, want 4", len(all))
		}
	}

	d = newDesk(t, Config{Bounds: &bounds, Entries: []Entry{{Name: "up", Mode: ModeSotW}}})
	s = d.hub.Subscribe(cache.Endpoint, fanout.NewSubscriber(func() {}))
	s.Delta([]string{"first"}, nil, d.now)
	d.settle()
	s.Delta(names, nil, d.now)
	if all := d.settle(); len(all) != 1 || len(all[0].(*discovery.DiscoveryRequest).GetResourceNames()) != 101 {
		t.Errorf("%d SotW requests, want one with 101 names", len(all))
	}
}
