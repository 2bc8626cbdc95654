package envoy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unique"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// largeAt is the name of a member of a large collection.
func largeAt(i int) string { return at(cache.LocalityHost, fmt.Sprintf("large/member-%05d", i)) }

// pace is that of changes. It is one for all sizes: the less often a process wakes up, the more that costs.
const pace = 100 * time.Millisecond

// A relay serves a collection to many clients that are no Envoys: real ones bring no versions, and these do. What a
// change of one member costs does not depend on how many there are, and what a client has takes few bytes. It judges
// what arrives, and tells what it takes.
func TestGlobScale(t *testing.T) {
	clients, sizes, changes := 20, []int{200, 2000}, 10
	if long() {
		clients, sizes, changes = 100, []int{1000, 10_000}, 200
	} else {
		t.Parallel() // it tells figures then, but nobody reads them
	}
	var costs []time.Duration
	for _, n := range sizes {
		t.Run(fmt.Sprintf("%d members", n), func(t *testing.T) {
			has := world{}
			for i := range n {
				has.put(cache.LocalityHost, largeAt(i), oneHost("127.0.0.1:1", 1))
			}
			plane := newPlane(t, has).Start()
			change := func(i int, weight uint32) {
				plane.Change(func(has world) { has.put(cache.LocalityHost, largeAt(i), oneHost("127.0.0.1:1", weight)) })
			}
			r := newProcess(t, plane.addr, "admin.pprof=true")
			r.Env = []string{"GOGC=25"} // what is garbage is not what a client costs
			r.Start()

			all := []*collector{startCollector(t, r.Addr, n)}
			each := func(missing func(*collector) error) {
				t.Helper()
				for _, c := range all {
					peer.Eventually(t, patience, func() error { return missing(c) })
				}
			}
			news := func(want int) {
				t.Helper()
				for _, c := range all {
					if err := peer.Is("members that a client was told of on its stream", c.news(), want); err != nil {
						t.Error(err)
					}
				}
			}
			returns := func(meanwhile func()) {
				t.Helper()
				for _, c := range all {
					c.Close()
				}
				meanwhile()
				for _, c := range all {
					c.Open()
				}
			}
			complete := func(c *collector) error { return c.has(n, n-1, 1) }
			each(complete)
			heap, rss := memory(t, r)
			for len(all) < 1+clients {
				all = append(all, startCollector(t, r.Addr, n))
			}
			each(complete)
			heap2, rss2 := memory(t, r)
			per := func(bytes int64) float64 { return float64(bytes) / float64(clients*n) }
			t.Logf("for each client and member: %.0f bytes of heap, %.0f of RSS; RSS with one client: %d MiB, with %d: %d MiB",
				per(heap2-heap), per(rss2-rss), rss>>20, len(all), rss2>>20)
			news(n)

			// They return to a relay that has just started, and has as much memory as it likes.
			returns(func() {
				r.Kill()
				r.Env = nil
				r.Start()
			})
			change(n-1, 2)
			each(func(c *collector) error { return c.has(n, n-1, 2) })
			before := cpuTime(r)
			for k := range changes {
				i, weight, next := k*7%n, uint32(k+3), time.After(pace)
				change(i, weight)
				each(func(c *collector) error { return c.has(n, i, weight) })
				<-next
			}
			cost := (cpuTime(r) - before) / time.Duration(changes*len(all))
			costs = append(costs, cost)
			t.Logf("for each change and client: %v of the relay's CPU time, with a change each %v", cost, pace)
			news(1 + changes)

			// They return; meanwhile a member has changed, one has gone and one has come.
			returns(func() {
				change(3, 7777)
				plane.Change(func(has world) { has.drop(cache.LocalityHost, largeAt(4)) })
				change(n, 7778)
			})
			each(func(c *collector) error { return peer.First(c.has(n, 3, 7777), c.has(n, n, 7778)) })
			news(3)
			if text, err := r.Page("/debug/check"); err != nil || strings.TrimSpace(text) != "ok" {
				t.Errorf("/debug/check: %s %v", text, err)
			}
		})
	}
	if len(costs) == 2 && costs[0] > 0 {
		t.Logf("%d times the members: %.2f times the CPU time for each change and client", sizes[1]/sizes[0], float64(costs[1])/float64(costs[0]))
	}
}

// collector is a Delta client that asks for the large collection, and keeps no more of a member than it needs.
type collector struct {
	t      testing.TB
	conn   *grpc.ClientConn
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	versions []unique.Handle[string] // by number
	weights  []uint32
	members  int // that there are
	told     int
	err      error
}

// gone is the version of a member that is not there.
var gone unique.Handle[string]

// startCollector asks for a collection of so many members, and one more.
func startCollector(t testing.TB, address string, n int) *collector {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{t: t, conn: conn, versions: make([]unique.Handle[string], n+1), weights: make([]uint32, n+1)}
	t.Cleanup(func() {
		c.Close()
		conn.Close()
	})
	c.Open()
	return c
}

// Open opens a stream, with the versions of what the client has.
func (c *collector) Open() {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.conn.ResetConnectBackoff()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(c.conn).DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		c.t.Fatal(err)
	}
	first := &discovery.DeltaDiscoveryRequest{
		Node: &core.Node{Id: "collector"}, TypeUrl: string(cache.LocalityHost), InitialResourceVersions: make(map[string]string),
		ResourceNamesSubscribe: []string{at(cache.LocalityHost, "large/*")},
	}
	c.mu.Lock()
	for i, v := range c.versions {
		if v != gone {
			first.InitialResourceVersions[largeAt(i)] = v.Value()
		}
	}
	c.told = 0
	c.mu.Unlock()
	if err := stream.Send(first); err != nil {
		c.t.Fatal(err)
	}
	c.work.Go(func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			c.take(r)
			_ = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}) // Recv says it, too
		}
	})
}

// Close ends the stream. It may be called twice.
func (c *collector) Close() {
	c.cancel()
	c.work.Wait()
}

func (c *collector) take(r *discovery.DeltaDiscoveryResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range r.GetResources() {
		var e endpoint.LbEndpoint
		i, err := number(m.GetName())
		if err = errors.Join(err, m.GetResource().UnmarshalTo(&e)); err != nil {
			c.err = err
			return
		}
		c.put(i, unique.Make(m.GetVersion()), e.GetLoadBalancingWeight().GetValue())
	}
	for _, name := range r.GetRemovedResources() {
		i, err := number(name)
		if err != nil {
			c.err = err
			return
		}
		c.put(i, gone, 0)
	}
	c.told += len(r.GetResources()) + len(r.GetRemovedResources())
}

func (c *collector) put(i int, version unique.Handle[string], weight uint32) {
	if c.versions[i] != gone {
		c.members--
	}
	if version != gone {
		c.members++
	}
	c.versions[i], c.weights[i] = version, weight
}

// number is that in the name of a member.
func number(name string) (int, error) {
	_, digits, _ := strings.Cut(name, "member-")
	i, err := strconv.Atoi(digits)
	if err == nil && name != largeAt(i) {
		err = fmt.Errorf("%s is not in the collection", name)
	}
	return i, err
}

// has complains unless the client has so many members, and this one with such a weight.
func (c *collector) has(members, i int, weight uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return peer.First(c.err, peer.Is("members", c.members, members), peer.Is("weight of "+largeAt(i), c.weights[i], weight))
}

// news is how many members the client was told of on its stream.
func (c *collector) news() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told
}

// memory is what a relay's live objects take, and what it has from the system; 0 where that does not tell.
func memory(t testing.TB, r *peer.Relay) (heap, rss int64) {
	t.Helper()
	for range 2 { // what a pool holds goes with the second
		if _, err := r.Page("/debug/pprof/heap?gc=1"); err != nil {
			t.Fatal(err)
		}
	}
	rss, _ = r.Resident()
	return int64(r.Metrics().Sum("go_gc_heap_live_bytes")), rss
}

// cpuTime is what a relay's process has used, to a hundredth of a second; 0 where the system does not tell.
func cpuTime(r *peer.Relay) (used time.Duration) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.Cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name of the program may have spaces
	fields := strings.Fields(rest)
	for _, i := range []int{11, 12} { // in its own code, and in the system's
		ticks, err := strconv.Atoi(fields[i])
		if err != nil {
			return 0
		}
		used += time.Duration(ticks) * 10 * time.Millisecond
	}
	return used
}
