//go:build linux

package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// envoy is a Delta client that starts as an Envoy does: all clusters, the endpoints
// of those that have any, then all listeners, and the routes that they name. It
// waits between streams as an Envoy does, too.
type envoy struct {
	node *core.Node
	conn *grpc.ClientConn
	want map[cache.TypeURL]int // how many of each type there are

	mu sync.Mutex
	// Survives streams.
	held      map[cache.TypeURL]map[string]string // versions
	listening bool                                // it asks for listeners
	completed time.Time                           // when it first had everything
	removals  int
	ends      []string // why streams ended
	// Of the open stream.
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	greet  *core.Node // to be sent with the next request
	asked  map[cache.TypeURL]map[string]bool
}

// Envoy's back-off doubles from the first to the longest; a wait is anything up to
// it, and a message makes it the first again.
const (
	envoyFirstBackoff = 500 * time.Millisecond
	envoyMaxBackoff   = 30 * time.Second
	// envoyPatience is how long it waits for its first clusters before it asks for
	// listeners all the same.
	envoyPatience = 15 * time.Second
)

// startEnvoy starts one that runs until the test ends.
func startEnvoy(t testing.TB, w world, r *peer.Relay, cluster string) *envoy {
	t.Helper()
	conn, err := grpc.NewClient(peer.Target(r.Addr), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0))
	if err != nil {
		t.Fatal(err)
	}
	e := &envoy{
		node: &core.Node{Id: "envoy-of-" + cluster, Cluster: cluster, UserAgentName: "envoy"},
		conn: conn, want: make(map[cache.TypeURL]int), held: make(map[cache.TypeURL]map[string]string),
	}
	for _, t := range worldTypes {
		e.held[t] = make(map[string]string)
	}
	for _, k := range w.keys() {
		if k.typ != cache.Endpoint || w.service(k) != nil { // nobody's cluster has the others
			e.want[k.typ]++
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { e.run(ctx) })
	work.Go(func() {
		if pause(ctx, envoyPatience) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.listen()
		}
	})
	t.Cleanup(func() {
		cancel()
		work.Wait()
		conn.Close()
	})
	return e
}

// run keeps a stream open until ctx ends.
func (e *envoy) run(ctx context.Context) {
	backoff := envoyFirstBackoff
	for {
		heard, err := e.converse(ctx)
		if heard {
			backoff = envoyFirstBackoff
		}
		e.mu.Lock()
		e.stream = nil
		e.ends = append(e.ends, fmt.Sprint(err))
		e.mu.Unlock()
		wait := rand.N(backoff)
		backoff = min(2*backoff, envoyMaxBackoff)
		if !pause(ctx, wait) {
			return
		}
	}
}

// converse is one stream, from beginning to end.
func (e *envoy) converse(ctx context.Context) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(e.conn).DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		return false, err
	}
	e.open(s)
	for {
		r, err := s.Recv()
		if err != nil {
			return heard, err
		}
		heard = true
		e.take(r)
	}
}

// open asks for all that has been asked for before, and says what came.
func (e *envoy) open(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stream, e.greet, e.asked = s, e.node, make(map[cache.TypeURL]map[string]bool)
	e.request(cache.Cluster)
	e.follow()
	if e.listening {
		e.request(cache.Listener)
	}
}

// request asks for names that have not been asked for on this stream; the first
// request of a type that names nothing asks for all.
func (e *envoy) request(t cache.TypeURL, names ...string) {
	if e.stream == nil {
		return
	}
	r := &discovery.DeltaDiscoveryRequest{Node: e.greet, TypeUrl: string(t)}
	if e.asked[t] == nil {
		e.asked[t] = make(map[string]bool)
		r.InitialResourceVersions = maps.Clone(e.held[t])
	}
	for _, name := range names {
		if !e.asked[t][name] {
			e.asked[t][name] = true
			r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, name)
		}
	}
	if len(names) > 0 && len(r.GetResourceNamesSubscribe()) == 0 {
		return
	}
	e.greet = nil
	_ = e.stream.Send(r) // a stream that is gone says so to whoever receives
}

// follow asks for what the clusters and the listeners lead to; when the clusters
// have all of it, for the listeners.
func (e *envoy) follow() {
	var endpoints, routes []string
	warm := len(e.held[cache.Cluster]) > 0
	for _, name := range slices.Sorted(maps.Keys(e.held[cache.Cluster])) {
		if strings.HasPrefix(name, servicePrefix) {
			endpoints = append(endpoints, name)
			_, came := e.held[cache.Endpoint][name]
			warm = warm && came
		}
	}
	if len(endpoints) > 0 {
		e.request(cache.Endpoint, endpoints...)
	}
	for _, name := range slices.Sorted(maps.Keys(e.held[cache.Listener])) {
		routes = append(routes, name+routesSuffix)
	}
	if len(routes) > 0 {
		e.request(cache.Route, routes...)
	}
	if warm {
		e.listen()
	}
}

// listen asks for all listeners, once.
func (e *envoy) listen() {
	if !e.listening {
		e.listening = true
		e.request(cache.Listener)
	}
}

// take takes a response in, and ACKs it.
func (e *envoy) take(r *discovery.DeltaDiscoveryResponse) {
	e.mu.Lock()
	defer e.mu.Unlock()
	held := e.held[cache.TypeURL(r.GetTypeUrl())]
	for _, resource := range r.GetResources() {
		held[resource.GetName()] = resource.GetVersion()
	}
	for _, name := range r.GetRemovedResources() {
		e.removals++
		delete(held, name)
	}
	_ = e.stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
	e.follow()
	if e.completed.IsZero() && e.lacks() == "" {
		e.completed = time.Now()
	}
}

// lacks says what is missing, or "".
func (e *envoy) lacks() string {
	for _, t := range worldTypes {
		if n := len(e.held[t]); n < e.want[t] {
			return fmt.Sprintf("an Envoy has %d %s of %d; its streams have ended: %q", n, t.Short(), e.want[t], e.ends)
		}
	}
	return ""
}

// missing complains until it has had everything.
func (e *envoy) missing() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.completed.IsZero() {
		return fmt.Errorf("%s", e.lacks())
	}
	return nil
}

// inAnOutage is what one Envoy has met.
type inAnOutage struct {
	outage     time.Duration
	first      time.Duration // from the control plane's return to the relay's first answered stream
	configured time.Duration // from there to the Envoy's whole configuration
	refusals   int
	removals   int
}

// start lets an Envoy start in an outage.
func (i *inAnOutage) start(t *testing.T, warm bool, sets []string, lasts time.Duration) {
	w := usual()
	w.Services, w.Backend = 20, "127.0.0.1:1"
	h := newHistory(w)
	up := &upstream{t: t, h: h, addr: peer.Address(t)}
	relay := newRelay(t, up.addr, sets...)
	if warm {
		up.Start(false)
	}
	relay.Start()
	if warm {
		for _, cluster := range []string{"a", "b", "c"} {
			e := startEnvoy(t, w, relay, cluster)
			eventually(t, e.missing)
		}
		up.Kill()
	}
	begin := time.Now()
	e := startEnvoy(t, w, relay, "new")
	pause(context.Background(), lasts)
	up.Start(false)
	returned := time.Now()
	i.outage = returned.Sub(begin)
	eventually(t, e.missing)
	first := time.Unix(0, up.Stats().First)
	e.mu.Lock()
	defer e.mu.Unlock()
	i.first, i.configured = first.Sub(returned), e.completed.Sub(first)
	i.refusals, i.removals = len(e.ends), e.removals
}

// An Envoy that starts while the control plane is away has its configuration soon
// after that is back (ERR-1, ERR-7): it must not sleep for long because it was
// refused often.
func TestEnvoyLikeClientInAnOutage(t *testing.T) {
	runs, from, to := 1, 3*time.Second, 5*time.Second
	unavailable, sets := 500*time.Millisecond, []string{"timers.unavailable_after=500ms"}
	if long() {
		runs, from, to = 10, 25*time.Second, 40*time.Second
		unavailable, sets = 5*time.Second, []string{"upstream.backoff.initial=1s", "upstream.backoff.max=10s"} // the defaults
	}
	sets = append(sets, "groups.key=[cluster]")
	r := begin(t, "EnvoyLikeClientInAnOutage", "an Envoy-like Delta client (its back-off: 0.5 s doubled to 30 s, full jitter, reset by a message) started in an outage of 25 to 40 s at random has its configuration within unavailable_after + 2 s of the relay's first answered stream (median of 10), and that stream is there within 12 s of upstream's return",
		"each run has a control plane, a relay and an Envoy of its own, at their defaults; all runs at once. groups.key is the cluster. Cold: the relay starts with the Envoy; other groups warm: three Envoys of other groups have had everything before. 50 clusters, 20 clusters with endpoints, 20 listeners, 20 route configurations")
	kinds := []string{"cold", "other groups warm"}
	met := make([][]inAnOutage, len(kinds))
	t.Run("runs", func(t *testing.T) {
		for k, kind := range kinds {
			met[k] = make([]inAnOutage, runs)
			for n := range runs {
				t.Run(fmt.Sprintf("%s %d", kind, n+1), func(t *testing.T) {
					t.Parallel() // in the long form, too: mostly they wait
					met[k][n].start(t, k == 1, sets, between(from, to))
				})
			}
		}
	})
	for k, kind := range kinds {
		var outages, first, configured durations
		refusals, removals := 0, 0
		for _, m := range met[k] {
			outages.add(m.outage)
			first.add(m.first)
			configured.add(m.configured)
			refusals, removals = refusals+m.refusals, removals+m.removals
		}
		r.tell(kind+": runs", float64(runs), "")
		r.tell(kind+": shortest outage", seconds(slices.Min(outages)), "s")
		r.tell(kind+": longest outage", seconds(slices.Max(outages)), "s")
		r.spread(kind+": the relay's first answered stream after the control plane's return", first, 12)
		r.tell(kind+": streams that ended without the configuration, for each Envoy", float64(refusals)/float64(runs), "")
		slices.Sort(configured)
		r.below(kind+": configuration after that: median", seconds(configured[runs/2]), (unavailable + 2*time.Second).Seconds(), "s")
		r.tell(kind+": configuration after that: slowest", seconds(configured[runs-1]), "s")
		r.none(kind+": removals", int64(removals))
	}
}
