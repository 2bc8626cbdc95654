package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// clusters is a world of clusters, and clients who want all of them.
type clusters struct {
	t   *testing.T
	hub *fanout.Hub
	now time.Time
}

// holder is a client that keeps what it is sent.
type holder struct {
	*clusters
	session *Session
	name    string
	sotw    bool
	holds   map[string]bool
	last    string // nonce
}

func newClusters(t *testing.T, n int, ready bool) *clusters {
	w := &clusters{t: t, hub: fanout.NewHub(fanout.Config{Linger: time.Minute}), now: epoch}
	leave := w.lookOn()
	w.apply(w.all(0, n), nil)
	if !ready {
		leave() // the set lingers
	}
	return w
}

// lookOn is a subscriber that only asks whether the set is complete (ERR-14).
func (w *clusters) lookOn() (leave func()) {
	s := w.hub.Subscribe(cache.Cluster, fanout.NewSubscriber(func() {}))
	s.Delta([]string{"*"}, nil, w.now)
	return func() { s.Close(w.now) }
}

func (w *clusters) all(from, to int) (names []string) {
	for i := from; i < to; i++ {
		names = append(names, fmt.Sprintf("cluster-%06d", i))
	}
	return names
}

func (w *clusters) apply(set, removed []string) {
	u := &cache.Update{Removed: removed, Synced: true}
	for _, name := range set {
		u.Set = append(u.Set, cache.Received{Resource: cache.NewResource(cache.Cluster, &discovery.Resource{
			Name: name, Resource: &anypb.Any{TypeUrl: string(cache.Cluster), Value: []byte(name)},
		}, cache.Fingerprint{})})
	}
	w.hub.Apply(fanout.Lane{Type: cache.Cluster, Wildcard: true}, u)
}

func (w *clusters) client(name string, c Config, sotw bool) *holder {
	c.AckTimeout, c.MaxName, c.MaxNames = 10*time.Second, 1000, 1_000_000
	h := &holder{clusters: w, name: name, sotw: sotw, holds: map[string]bool{}}
	h.session = New(&c, Stream{Delta: !sotw}, Peer{}, oneGroup{w.hub}, NewClusterDeliveries(), func() {})
	h.ask("", "*")
	return h
}

func (h *holder) ask(nonce string, names ...string) {
	h.t.Helper()
	var end *End
	if h.sotw {
		_, end = h.session.SotWRequest(&discovery.DiscoveryRequest{TypeUrl: string(cache.Cluster), ResourceNames: []string{"*"}, ResponseNonce: nonce}, h.now)
	} else {
		_, end = h.session.DeltaRequest(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Cluster), ResourceNamesSubscribe: names, ResponseNonce: nonce}, h.now)
	}
	if end != nil {
		h.t.Fatal(end)
	}
}

func (h *holder) ack() { h.ask(h.last) }

// read takes in at most so many responses, and says how many there were.
func (h *holder) read(most int) (n int) {
	h.t.Helper()
	for ; n < most; n++ {
		r, end := h.session.Next(h.now)
		if end != nil {
			h.t.Fatal(end)
		}
		if r == nil {
			break
		}
		h.last = r.Nonce
		if h.sotw {
			clear(h.holds)
		}
		for _, res := range r.Resources {
			h.holds[res.Name] = true
		}
		for _, name := range r.Removed {
			delete(h.holds, name)
		}
	}
	return n
}

// rest reads and ACKs until nothing comes.
func (h *holder) rest() {
	h.t.Helper()
	for h.read(1000) > 0 {
		h.ack()
	}
}

func (h *holder) check(want []string) {
	h.t.Helper()
	missing := slices.ContainsFunc(want, func(name string) bool { return !h.holds[name] })
	if len(h.holds) != len(want) || missing {
		h.t.Errorf("%s holds %d clusters, want %d (missing: %v)", h.name, len(h.holds), len(want), missing)
	}
}

// remembered is how many names are kept as gone.
func (w *clusters) remembered() int { return w.hub.Summarize()[0].Gone }

// positions are how far clients can be when much goes at once. Each begins with a set
// that is complete.
var positions = []struct {
	name  string
	sotw  bool
	split bool
	act   func(*holder)
}{
	{"has ACKed all", false, false, (*holder).rest},
	{"has ACKed all, SotW", true, false, (*holder).rest},
	{"has ACKed the first set", false, false, func(h *holder) { h.read(1); h.ack() }},
	{"owes the ACK of the first set", false, false, func(h *holder) { h.read(1) }},
	{"owes the ACK of the first set, SotW", true, false, func(h *holder) { h.read(1) }},
	{"is in the midst of the first set", false, true, func(h *holder) { h.read(1) }},
	{"was told nothing", false, false, func(*holder) {}},
	{"owes the ACK of a change", false, false, func(h *holder) {
		h.rest()
		h.apply([]string{"late"}, nil)
		h.read(1)
	}},
}

// TestMassRemoval: removals that come at once reach every client that holds the resources,
// wherever its positions are, and are forgotten when all were sent (H-42).
func TestMassRemoval(t *testing.T) {
	for _, size := range []struct{ all, gone int }{{100, 90}, {10_100, 10_000}} {
		for _, ready := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d of %d, ready types %v", size.gone, size.all, ready), func(t *testing.T) {
				massRemoval(t, size.all, size.gone, ready, 0, len(positions))
				for i := range positions {
					massRemoval(t, size.all, size.gone, ready, i, i+1)
				}
			})
		}
	}
}

func massRemoval(t *testing.T, all, gone int, ready bool, from, to int) {
	w := newClusters(t, all, ready)
	var everybody []*holder
	for _, at := range positions[from:to] {
		c := Config{}
		if at.split {
			c.MaxResponse = all * 10
		}
		h := w.client(at.name, c, at.sotw)
		at.act(h)
		everybody = append(everybody, h)
	}
	w.apply([]string{"late"}, nil)
	w.apply(nil, w.all(0, gone))
	for _, h := range everybody {
		if h.name == positions[0].name || h.name == positions[1].name {
			h.rest()
		}
	}
	w.apply([]string{"later"}, nil) // what is not remembered by now is lost
	want := append(w.all(gone, all), "late", "later")
	for _, h := range everybody {
		h.ack()
		h.rest()
		h.check(want)
	}
	if n, most := w.remembered(), fanout.DefaultBounds.Tombstones(len(want)); n > most {
		t.Errorf("%d names are remembered as gone when everybody has been told, want at most %d", n, most)
	}
}

// TestGoneWithItsReader: removals are remembered for a client that never reads until its stream
// ends, and no longer (H-42).
func TestGoneWithItsReader(t *testing.T) {
	const many = 1000
	w := newClusters(t, many, true)
	quick, deaf := w.client("quick", Config{}, false), w.client("deaf", Config{}, false)
	quick.rest()
	deaf.read(1)
	w.apply(nil, w.all(0, many))
	quick.rest()
	if n := w.remembered(); n != many {
		t.Errorf("%d names are remembered as gone for one who was not told, want %d", n, many)
	}
	deaf.session.Close(w.now)
	if n := w.remembered(); n > fanout.DefaultBounds.Tombstones(0) {
		t.Errorf("%d names are remembered as gone for nobody", n)
	}
}
