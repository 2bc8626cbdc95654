package session

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// What clients cost of which more is recorded than positions. The limits are those for 1,000 clients that mix
// names and the wildcard, and for 10,000 that come back while the control plane is away.

// TestBytesOfMixedClients: a client with the wildcard and 100 names of 1,000 clusters takes at most 100 KB more than one with the
// wildcard alone.
func TestBytesOfMixedClients(t *testing.T) {
	const clients, most = 50, 100 << 10
	hub := fanout.NewHub(fanout.Config{})
	var named []string
	u, byName := &cache.Update{Synced: true}, &cache.Update{}
	for i := range 1000 {
		r := cluster(fmt.Sprint("cluster-", i))
		u.Set = append(u.Set, cache.Received{Resource: r})
		if i < 100 {
			named = append(named, r.Name)
			byName.Set = append(byName.Set, cache.Received{Resource: r})
		}
	}
	each := func(names ...string) int {
		before := heap()
		all := make([]*Session, clients)
		for i := range all {
			all[i] = comes(t, hub, cache.Cluster, nil, names)
		}
		if hub.On(fanout.Lane{Type: cache.Cluster, Wildcard: true}).Len() == 0 {
			hub.Apply(fanout.Lane{Type: cache.Cluster, Wildcard: true}, u)
			hub.Apply(fanout.Lane{Type: cache.Cluster}, byName)
		}
		for _, s := range all {
			for r, _ := s.Next(epoch); r != nil; r, _ = s.Next(epoch) {
				answer(t, s, r)
			}
		}
		grown := heap() - before
		runtime.KeepAlive(all)
		return grown / clients
	}
	keeps := comes(t, hub, cache.Cluster, nil, append([]string{"*"}, named...)) // what all share is not counted
	each("*")
	plain, mixed := each("*"), each(append([]string{"*"}, named...)...)
	t.Logf("a plain client takes %d bytes, one with 100 names, too, %d", plain, mixed)
	if mixed-plain > most {
		t.Errorf("a client with names and the wildcard takes %d bytes more than one with the wildcard alone, at most %d are allowed", mixed-plain, most)
	}
	runtime.KeepAlive(keeps)
}

// TestBytesOfGlobs: what a client holds of a glob takes at most 100 bytes for each member.
func TestBytesOfGlobs(t *testing.T) {
	const clients, members, most = 20, 10_000, 100
	hub := fanout.NewHub(fanout.Config{})
	keeps := comes(t, hub, cache.Endpoint, nil, []string{glob}) // what all share is not counted
	u := &cache.Update{}
	for i := range members {
		r := cache.NewResource(cache.Endpoint, &discovery.Resource{Name: inGlob(fmt.Sprint(i)), Resource: &anypb.Any{TypeUrl: string(cache.Endpoint)}}, cache.Fingerprint{})
		u.Set = append(u.Set, cache.Received{Resource: r})
	}
	hub.Apply(fanout.Lane{Type: cache.Endpoint}, u)
	before, all := heap(), make([]*Session, clients)
	for i := range all {
		s := comes(t, hub, cache.Endpoint, nil, []string{glob})
		sent := 0
		for r, _ := s.Next(epoch); r != nil; r, _ = s.Next(epoch) {
			sent += len(r.Resources)
			answer(t, s, r)
		}
		if sent != members {
			t.Fatalf("a client is sent %d of %d members", sent, members)
		}
		all[i] = s
	}
	each := float64(heap()-before) / clients / members
	t.Logf("%.1f bytes for each client and member", each)
	if each > most {
		t.Errorf("a member takes %.1f bytes for each client, at most %d are allowed", each, most)
	}
	runtime.KeepAlive(all)
	runtime.KeepAlive(keeps)
}

// TestBytesOfClaims: a client that comes back with 1,000 versions while nothing is known of these takes at most 30 KB for
// them, if others have come with the same.
func TestBytesOfClaims(t *testing.T) {
	const clients, most = 50, 30 << 10
	for name, wanted := range map[string]func(i int) string{"all": func(int) string { return "*" }, "each by name": func(i int) string { return fmt.Sprint("cluster-", i) }} {
		hub := fanout.NewHub(fanout.Config{})
		come := func() *Session {
			versions, names := make(map[string]string), make(map[string]bool)
			for i := range 1000 {
				versions[fmt.Sprint("cluster-", i)] = fmt.Sprint("1:", strings.Repeat("0", 26), 100000+i)
				names[wanted(i)] = true
			}
			var list []string
			for name := range names {
				list = append(list, name)
			}
			s := comes(t, hub, cache.Cluster, versions, list)
			if r, _ := s.Next(epoch); r != nil {
				t.Fatalf("it is sent %v", r)
			}
			return s
		}
		all := []*Session{come()}
		before := heap()
		for range clients {
			all = append(all, come())
		}
		each := (heap() - before) / clients
		t.Logf("%s: a client takes %d bytes", name, each)
		if each > most {
			t.Errorf("%s: a client that comes back takes %d bytes, at most %d are allowed", name, each, most)
		}
		// A version that differs, and an answer, concern one client alone.
		if _, end := all[0].DeltaRequest(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Cluster), ResourceNamesUnsubscribe: []string{wanted(1)}}, epoch); end != nil {
			t.Fatal(end)
		}
		held := func(s *Session) int { return s.find(cache.Cluster).base().exact.count }
		if held(all[0]) >= 1000 || held(all[1]) != 1000 {
			t.Errorf("%s: of 1,000 resources, one client has %d after it gave up some, and another %d", name, held(all[0]), held(all[1]))
		}
		for _, b := range append(all[0].Check(), all[1].Check()...) {
			t.Error(b)
		}
		runtime.KeepAlive(all)
	}
}

func cluster(name string) *cache.Resource {
	return cache.NewResource(cache.Cluster, &discovery.Resource{
		Name: name, Resource: &anypb.Any{TypeUrl: string(cache.Cluster), Value: []byte(name)},
	}, cache.Fingerprint{})
}

// comes opens a Delta stream with one request.
func comes(t *testing.T, hub *fanout.Hub, typ cache.TypeURL, versions map[string]string, names []string) *Session {
	t.Helper()
	s := New(&Config{MaxName: 1000, MaxNames: 10_000, AckTimeout: time.Minute}, Stream{Delta: true}, Peer{}, oneGroup{hub}, NewClusterDeliveries(), func() {})
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(typ), ResourceNamesSubscribe: names, InitialResourceVersions: versions}
	if _, end := s.DeltaRequest(req, epoch); end != nil {
		t.Fatal(end)
	}
	return s
}

func answer(t *testing.T, s *Session, r *Response) {
	t.Helper()
	if _, end := s.DeltaRequest(&discovery.DeltaDiscoveryRequest{TypeUrl: string(r.Type), ResponseNonce: r.Nonce}, epoch); end != nil {
		t.Fatal(end)
	}
}
