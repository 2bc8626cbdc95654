package session

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// oneGroup has all clients in one group.
type oneGroup struct{ hub *fanout.Hub }

func (oneGroup) Key(Peer, *core.Node) (string, *End) { return "", nil }
func (g oneGroup) Join(Peer, *core.Node, cache.TypeURL) (Membership, *End) {
	return Membership{Hub: g.hub, Leave: func() {}}, nil
}

var epoch = time.Unix(1, 0)

// told is a Session whose client asks for everything and reads responses by hand.
type told struct {
	*Session
	t   *testing.T
	hub *fanout.Hub
	now time.Time
}

func newTold(t *testing.T, c Config, types ...cache.TypeURL) *told {
	hub := fanout.NewHub(fanout.Config{Linger: time.Second})
	c.AckTimeout, c.MaxName, c.MaxNames = 10*time.Second, 1000, 1000
	s := &told{t: t, hub: hub, now: epoch, Session: New(&c, Stream{Delta: true}, Peer{}, oneGroup{hub}, NewClusterDeliveries(), func() {})}
	for _, typ := range types {
		s.ask(&discovery.DeltaDiscoveryRequest{TypeUrl: string(typ), ResourceNamesSubscribe: []string{"*"}})
		s.hub.Apply(fanout.Lane{Type: typ, Wildcard: true}, &cache.Update{Synced: true})
		s.read()
	}
	return s
}

func (s *told) ask(req *discovery.DeltaDiscoveryRequest) {
	s.t.Helper()
	if _, end := s.DeltaRequest(req, s.now); end != nil {
		s.t.Fatal(end)
	}
}

// read is the next response, or nil.
func (s *told) read() *Response {
	s.t.Helper()
	r, end := s.Next(s.now)
	if end != nil {
		s.t.Fatal(end)
	}
	return r
}

// accept ACKs a response.
func (s *told) accept(r *Response) {
	s.t.Helper()
	s.ask(&discovery.DeltaDiscoveryRequest{TypeUrl: string(r.Type), ResponseNonce: r.Nonce})
}

// hear reads what there is, until nothing comes, and ACKs none of it.
func (s *told) hear() (said []string) {
	for r := s.read(); r != nil; r = s.read() {
		said = append(said, r.words())
	}
	return said
}

func (r *Response) words() string {
	words := []string{r.Type.Short()}
	for _, res := range r.Resources {
		words = append(words, "+"+res.Name)
	}
	for _, name := range r.Removed {
		words = append(words, "-"+name)
	}
	return strings.Join(words, " ")
}

func (s *told) change(typ cache.TypeURL, names ...string) {
	u := &cache.Update{}
	for _, name := range names {
		if gone, ok := strings.CutPrefix(name, "-"); ok {
			u.Removed = append(u.Removed, gone)
			continue
		}
		s.counter++ // for another body; nonces do not mind
		name, size, _ := strings.Cut(name, "/")
		n := 0
		_, _ = fmt.Sscan(size, &n)
		body := fmt.Appendf(make([]byte, n), "%d", s.counter)
		u.Set = append(u.Set, cache.Received{Resource: cache.NewResource(typ, &discovery.Resource{
			Name: name, Resource: &anypb.Any{TypeUrl: string(typ), Value: body},
		}, cache.Fingerprint{})})
	}
	s.hub.Apply(fanout.Lane{Type: typ, Wildcard: true}, u)
}

func (s *told) says(want ...string) {
	s.t.Helper()
	if got := s.hear(); fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("said %q, want %q", got, want)
	}
}

func newAccepted(t *testing.T, types ...cache.TypeURL) *told {
	s := newTold(t, Config{}, types...)
	s.now = s.now.Add(time.Minute) // the first answers need no ACK any more
	return s
}

// TestLaterTypesReferToEarlierOnes: changes that come while a response waits for its client are
// sent in order, too. A listener that has changed meanwhile does not go before the cluster that
// it needs (ORDER-2).
func TestLaterTypesReferToEarlierOnes(t *testing.T) {
	s := newAccepted(t, cache.Secret, cache.Cluster, cache.Endpoint, cache.Listener)
	s.change(cache.Listener, "l")
	s.change(cache.Cluster, "c1")
	s.change(cache.Secret, "s1")
	if r := s.read(); r.words() != "SDS +s1" {
		t.Fatal(r.words())
	}
	s.change(cache.Listener, "l")
	s.change(cache.Endpoint, "e")
	s.change(cache.Cluster, "c2")
	s.says("CDS +c1 +c2", "EDS +e", "LDS +l")
}

// TestSecretsGoAfterChangesOfClusters: a secret is removed after the change of the cluster that used it, though
// another secret has come in its place (ORDER-2).
func TestSecretsGoAfterChangesOfClusters(t *testing.T) {
	s := newAccepted(t, cache.Secret, cache.Cluster)
	s.change(cache.Secret, "s1")
	s.accept(s.read())
	s.change(cache.Cluster, "c")
	s.accept(s.read())
	s.change(cache.Secret, "s2", "-s1")
	s.change(cache.Cluster, "c")
	comes := s.read()
	if comes.words() != "SDS +s2" {
		t.Errorf("said %q first", comes.words())
	}
	s.accept(comes)
	s.says("CDS +c", "SDS -s1")
}

// TestClustersGoAfterChangesOfListeners: what may be referred to is removed after the changes that are
// pending of listeners and routes; these take their own removals along (ORDER-2).
func TestClustersGoAfterChangesOfListeners(t *testing.T) {
	s := newAccepted(t, cache.Cluster, cache.Listener, cache.Route)
	s.change(cache.Cluster, "c")
	s.change(cache.Route, "r")
	cds, rds := s.read(), s.read()
	s.change(cache.Listener, "l") // waits for nothing
	lds := s.read()
	s.accept(cds)
	s.accept(rds)

	s.change(cache.Listener, "m", "-l") // waits for the ACK
	s.change(cache.Cluster, "-c")
	s.change(cache.Route, "-r")
	s.says("RDS -r")
	s.change(cache.Listener, "n", "-m") // comes later, and is told with the one before
	s.accept(lds)
	s.says("LDS +n -l -m", "CDS -c")

	// A client that accepts nothing is told in the end.
	s = newAccepted(t, cache.Cluster, cache.Listener)
	s.change(cache.Cluster, "c")
	s.accept(s.read())
	s.change(cache.Listener, "l")
	s.says("LDS +l")
	s.change(cache.Listener, "l")
	s.change(cache.Cluster, "-c")
	s.says()
	s.now = s.now.Add(9 * time.Second)
	s.change(cache.Cluster, "d") // and its own additions do not wait
	s.says("CDS +d")
	s.now = s.now.Add(time.Second)
	s.says("LDS +l")
}

// TestNothingButMarksWaits: a client that does not read holds one response. However much changes,
// nothing else waits for it in memory, and it reads the latest state of everything next, once
// (H-12).
func TestNothingButMarksWaits(t *testing.T) {
	const names, changes, size = 100, 100_000, 8 << 10
	types := []cache.TypeURL{cache.Secret, cache.Cluster, cache.Endpoint, cache.Listener, cache.Route}
	s := newTold(t, Config{}, types...)
	s.now = s.now.Add(time.Minute)
	for i := range names {
		for _, typ := range types {
			s.change(typ, fmt.Sprintf("r%d/%d", i, size))
		}
	}
	var named []string
	for i := range names {
		named = append(named, fmt.Sprint("r", i))
	}
	held := s.read() // it is being sent, for a long time
	before := heap()
	for i := range changes {
		s.change(types[i%len(types)], fmt.Sprintf("r%d/%d", i/len(types)%names, size))
		if i%1000 == 0 { // it asks, too
			s.ask(&discovery.DeltaDiscoveryRequest{TypeUrl: string(types[i/1000%len(types)]), ResourceNamesSubscribe: named})
		}
	}
	grown := heap() - before
	runtime.KeepAlive(held)
	// What is being sent is no longer what the cache has, so both are there.
	if limit := names*size + 1<<20; grown > limit {
		t.Errorf("%d changes of %d bytes left %d KiB behind, want at most %d KiB", changes, size, grown>>10, limit>>10)
	}
	t.Logf("%d changes (%d MiB) while a response waits: %d KiB more in memory", changes, changes*size>>20, grown>>10)

	s.now = s.now.Add(time.Minute)
	var order []string
	for r := s.read(); r != nil; r = s.read() {
		if len(r.Resources) > 0 {
			order = append(order, r.Type.Short())
		}
		for _, res := range r.Resources {
			if latest := s.latest(r.Type, res.Name); res != latest {
				t.Fatalf("%s %s is not the latest", r.Type.Short(), res.Name)
			}
		}
	}
	if got := strings.Join(order, " "); got != "SDS CDS EDS LDS RDS" {
		t.Errorf("told in the order %s", got)
	}
}

// latest is the resource that the cache has for the wildcard.
func (s *told) latest(typ cache.TypeURL, name string) (r *cache.Resource) {
	s.find(typ).base().sub.Read(func(v fanout.View) {
		if id, ok := v.Lookup(name); ok && v.Answer(id).Resource != nil {
			r = v.Answer(id).Resource
		} else {
			r = v.Set().Member(name)
		}
	})
	return r
}

// heap is what is reachable, in bytes.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A client that has acknowledged its clusters has not let others wait in vain, however late a
// sender looks: the next changes wait for the next clusters (ORDER-3).
func TestAHoldDoesNotRunOutAfterTheACK(t *testing.T) {
	s := newTold(t, Config{WarmingHold: 5 * time.Second}, cache.Cluster, cache.Listener)
	s.now = s.now.Add(time.Minute) // the first answers need no ACK any more
	s.change(cache.Cluster, "a")
	clusters := s.read()
	s.change(cache.Listener, "l")
	s.says()
	s.now = s.now.Add(6 * time.Second)
	s.accept(clusters)
	listeners := s.read()
	if got := listeners.words(); got != "LDS +l" {
		t.Fatalf("said %q", got)
	}
	s.accept(listeners)
	s.change(cache.Cluster, "b")
	s.says("CDS +b")
	s.change(cache.Listener, "l")
	s.says()
}

// TestChangesDoNotOvertakeTheirClusters: a cluster and then a listener that needs it change while
// the client is sent other resources. The cluster may change after clusters were looked at, and
// the listener before listeners are (ORDER-3).
func TestChangesDoNotOvertakeTheirClusters(t *testing.T) {
	const pairs = 20_000
	s := newTold(t, Config{WarmingHold: 5 * time.Second}, cache.Cluster, cache.Listener)
	s.now = s.now.Add(time.Minute)
	apply := func(typ cache.TypeURL, name string) {
		res := cache.NewResource(typ, &discovery.Resource{Name: name, Resource: &anypb.Any{TypeUrl: string(typ)}}, cache.Fingerprint{})
		s.hub.Apply(fanout.Lane{Type: typ, Wildcard: true}, &cache.Update{Set: []cache.Received{{Resource: res}}})
	}
	go func() {
		for i := range pairs {
			apply(cache.Cluster, fmt.Sprint(i))
			apply(cache.Listener, fmt.Sprint(i))
		}
	}()
	clusters, listeners := make(map[string]bool), 0
	for listeners < pairs {
		r := s.read()
		if r == nil {
			runtime.Gosched()
			continue
		}
		for _, res := range r.Resources {
			switch {
			case r.Type == cache.Cluster:
				clusters[res.Name] = true
			case !clusters[res.Name]:
				t.Fatalf("listener %s is told before its cluster", res.Name)
			default:
				listeners++
			}
		}
		s.accept(r)
	}
}

// meddler is the lock of a type before which something else happens, once.
type meddler struct {
	sync.Mutex
	before *func()
}

func (m *meddler) Lock() {
	if f := *m.before; f != nil {
		*m.before = nil
		f()
	}
	m.Mutex.Lock()
}

// TestRemovalsWaitForWhatCameMeanwhile: endpoints that go with a change of listeners go after it, even if both come while
// the next response is chosen (ORDER-2).
func TestRemovalsWaitForWhatCameMeanwhile(t *testing.T) {
	var before func()
	hub := fanout.NewHub(fanout.Config{Lock: func() sync.Locker { return &meddler{before: &before} }})
	config := &Config{AckTimeout: 10 * time.Second, MaxName: 1000, MaxNames: 1000}
	s := &told{t: t, hub: hub, now: epoch, Session: New(config, Stream{Delta: true}, Peer{}, oneGroup{hub}, NewClusterDeliveries(), func() {})}
	apply := func(t cache.TypeURL, u *cache.Update) {
		u.Synced = true
		hub.Apply(fanout.Lane{Type: t, Wildcard: true}, u)
	}
	set := func(t cache.TypeURL, name, body string) *cache.Update {
		return &cache.Update{Set: []cache.Received{{Resource: cache.NewResource(t, &discovery.Resource{
			Name: name, Resource: &anypb.Any{TypeUrl: string(t), Value: []byte(body)},
		}, cache.Fingerprint{})}}}
	}
	for _, typ := range []cache.TypeURL{cache.Endpoint, cache.Listener} {
		s.ask(&discovery.DeltaDiscoveryRequest{TypeUrl: string(typ), ResourceNamesSubscribe: []string{"*"}})
		apply(typ, set(typ, "old", "1"))
		s.ask(&discovery.DeltaDiscoveryRequest{TypeUrl: string(typ), ResponseNonce: s.read().Nonce})
	}
	apply(cache.Endpoint, set(cache.Endpoint, "new", "1"))
	before = func() {
		apply(cache.Listener, set(cache.Listener, "old", "2"))
		apply(cache.Endpoint, &cache.Update{Removed: []string{"old"}})
	}
	var order []string
	for r := s.read(); r != nil; r = s.read() {
		for _, res := range r.Resources {
			order = append(order, r.Type.Short()+" +"+res.Name)
		}
		for _, name := range r.Removed {
			order = append(order, r.Type.Short()+" -"+name)
		}
		s.ask(&discovery.DeltaDiscoveryRequest{TypeUrl: string(r.Type), ResponseNonce: r.Nonce})
	}
	if want := []string{"EDS +new", "LDS +old", "EDS -old"}; !slices.Equal(order, want) {
		t.Errorf("it says %q, want %q", order, want)
	}
}
