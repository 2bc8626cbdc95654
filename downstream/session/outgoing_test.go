package session

import (
	"fmt"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// turnWorld is a client of clusters and routes, and what upstream says of them.
type turnWorld struct {
	t    *testing.T
	hub  *fanout.Hub
	now  time.Time
	s    *Session
	last map[cache.TypeURL]string
}

func newTurnWorld(t *testing.T) *turnWorld {
	w := &turnWorld{t: t, hub: fanout.NewHub(fanout.Config{Linger: time.Minute}), now: epoch, last: map[cache.TypeURL]string{}}
	c := &Config{AckTimeout: 10 * time.Second, MaxName: 1000, MaxNames: 1_000_000, WarmingHold: 5 * time.Second}
	w.s = New(c, Stream{}, Peer{}, oneGroup{w.hub}, NewClusterDeliveries(), func() {})
	return w
}

func (w *turnWorld) req(t cache.TypeURL, nonce string, names ...string) {
	w.t.Helper()
	if _, end := w.s.SotWRequest(&discovery.DiscoveryRequest{Node: &core.Node{Id: "n"}, TypeUrl: string(t), ResourceNames: names, ResponseNonce: nonce}, w.now); end != nil {
		w.t.Fatal(end)
	}
}

func (w *turnWorld) res(t cache.TypeURL, name, body string) cache.Received {
	d := &discovery.Resource{Name: name, Resource: &anypb.Any{TypeUrl: string(t), Value: []byte(body)}}
	return cache.Received{Resource: cache.NewResource(t, d, cache.Fingerprint{})}
}

func (w *turnWorld) apply(t cache.TypeURL, wild bool, removed []string, set ...cache.Received) {
	w.hub.Apply(fanout.Lane{Type: t, Wildcard: wild}, &cache.Update{At: w.now, Set: set, Removed: removed, Synced: wild})
}

func (w *turnWorld) next() *Response {
	w.t.Helper()
	r, end := w.s.Next(w.now)
	if end != nil {
		w.t.Fatal(end)
	}
	if r != nil {
		w.last[r.Type] = r.Nonce
	}
	return r
}

func said(r *Response) string {
	if r == nil {
		return "-"
	}
	s := r.Type.Short()
	for _, x := range r.Resources {
		s += " +" + x.Name
	}
	for _, x := range r.Errors {
		s += " !" + x.GetResourceName().GetName()
	}
	return s
}

// The ACK, the route's turn and another cluster have come before the sender looks.
func TestWhatStaysWaitsForARouteOfTheSameFlush(t *testing.T) {
	w := newTurnWorld(t)
	w.req(cache.Cluster, "", "*")
	w.req(cache.Route, "", "r")
	w.apply(cache.Cluster, true, nil, w.res(cache.Cluster, "kept", "1"), w.res(cache.Cluster, "old", "1"))
	w.apply(cache.Route, false, nil, w.res(cache.Route, "r", "1"))
	w.next()
	w.next()
	w.req(cache.Cluster, w.last[cache.Cluster], "*")
	w.req(cache.Route, w.last[cache.Route], "r")
	w.apply(cache.Cluster, true, []string{"old"}, w.res(cache.Cluster, "new", "1"))
	w.next()
	// all before the next look
	w.apply(cache.Route, false, nil, w.res(cache.Route, "r", "2"))
	w.apply(cache.Cluster, true, nil, w.res(cache.Cluster, "other", "1"))
	w.req(cache.Cluster, w.last[cache.Cluster], "*")
	if got := said(w.next()); got != "CDS +kept +new +other +old" {
		t.Errorf("%s; the route is not turned yet", got)
	}
}

// What stays is what the client was sent, though it has changed before it went.
func TestWhatStaysIsWhatTheClientHas(t *testing.T) {
	w := newTurnWorld(t)
	w.req(cache.Cluster, "", "*")
	w.req(cache.Route, "", "r")
	w.apply(cache.Cluster, true, nil, w.res(cache.Cluster, "old", "1"))
	w.next()
	w.apply(cache.Cluster, true, nil, w.res(cache.Cluster, "old", "2"), w.res(cache.Cluster, "brief", "1"))
	w.apply(cache.Cluster, true, []string{"old", "brief"}, w.res(cache.Cluster, "new", "1"))
	w.req(cache.Cluster, w.last[cache.Cluster], "*")
	r := w.next()
	if got := said(r); got != "CDS +new +old" {
		t.Fatalf("%s; the client has old, and never had brief", got)
	}
	if old := r.Resources[1]; old.Version != w.res(cache.Cluster, "old", "1").Version {
		t.Error("old is listed as the client never had it")
	}
}

// Two lanes lose what stays, one after the other: it is listed once.
func TestWhatStaysIsListedOnce(t *testing.T) {
	w := newTurnWorld(t)
	other := newTurnWorld(t)
	other.s = New(w.s.config, Stream{}, Peer{}, oneGroup{w.hub}, NewClusterDeliveries(), func() {})
	other.req(cache.Cluster, "", "*")
	w.req(cache.Cluster, "", "a", "b", "old")
	w.req(cache.Route, "", "r")
	for _, wild := range []bool{true, false} {
		w.apply(cache.Cluster, wild, nil, w.res(cache.Cluster, "old", "1"))
	}
	w.next()
	w.req(cache.Cluster, w.last[cache.Cluster], "a", "b", "old")
	w.apply(cache.Cluster, false, []string{"old"}, w.res(cache.Cluster, "a", "1"))
	if got := said(w.next()); got != "CDS +a +old" {
		t.Fatal(got)
	}
	w.apply(cache.Route, false, nil, w.res(cache.Route, "r", "1"))
	w.apply(cache.Cluster, true, []string{"old"})
	w.apply(cache.Cluster, false, nil, w.res(cache.Cluster, "b", "1"))
	w.req(cache.Cluster, w.last[cache.Cluster], "a", "b", "old")
	if got := said(w.next()); got != "CDS +a +b +old" {
		t.Error(got)
	}
}

// BenchmarkReplacedCluster: one cluster of 10,000 is replaced, for 20 clients; each is sent the
// set with the one that goes, and the set without it.
func BenchmarkReplacedCluster(b *testing.B) {
	const clients, clusters = 20, 10_000
	w := &turnWorld{t: &testing.T{}, hub: fanout.NewHub(fanout.Config{Linger: time.Minute}), now: epoch, last: map[cache.TypeURL]string{}}
	c := &Config{AckTimeout: 10 * time.Second, MaxName: 1000, MaxNames: 1_000_000, WarmingHold: 5 * time.Second}
	all := make([]*turnWorld, clients)
	for i := range all {
		all[i] = &turnWorld{t: w.t, hub: w.hub, now: epoch, last: map[cache.TypeURL]string{}}
		all[i].s = New(c, Stream{}, Peer{}, oneGroup{w.hub}, NewClusterDeliveries(), func() {})
		all[i].req(cache.Cluster, "", "*")
		all[i].req(cache.Route, "", "r")
	}
	set := make([]cache.Received, clusters)
	for i := range set {
		set[i] = w.res(cache.Cluster, fmt.Sprint("old ", i), "1")
	}
	w.apply(cache.Cluster, true, nil, set...)
	sets := 0
	told := func() {
		for _, client := range all {
			if client.next() != nil {
				sets++
			}
			client.req(cache.Cluster, client.last[cache.Cluster], "*")
		}
	}
	told()
	sets = 0
	for i := 0; b.Loop(); i++ {
		w.now = w.now.Add(time.Second)
		w.apply(cache.Cluster, true, []string{fmt.Sprint("old ", i)}, w.res(cache.Cluster, fmt.Sprint("new ", i), "1"))
		told()
		told()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(sets), "µs/set")
}
