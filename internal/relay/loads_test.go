package relay

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/hop"
	"github.com/xds-relay/xds-relay/internal/loadreport"
)

const sums = "passthrough=[{service: " + config.LoadReporting + ", aggregate: true}]"

// loadSink is the control plane's side: it keeps all reports, and answers the first one of a call.
type loadSink struct {
	answer *lrs.LoadStatsResponse // nil: it does not answer
	deaf   bool                   // it reads nothing after it has answered

	mu     sync.Mutex
	calls  [][]*lrs.LoadStatsRequest // by call
	at     []time.Time               // when the last report of each came
	header []metadata.MD
	ends   []chan error // has each call end
}

func sink(every time.Duration, clusters ...string) *loadSink {
	return &loadSink{answer: &lrs.LoadStatsResponse{Clusters: clusters, LoadReportingInterval: durationpb.New(every)}}
}

func (k *loadSink) serve(s grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	k.mu.Lock()
	n := len(k.calls)
	k.calls, k.at, k.header = append(k.calls, nil), append(k.at, time.Time{}), append(k.header, md)
	end := make(chan error, 1) // it belongs to the bubble
	k.ends = append(k.ends, end)
	answer, deaf := k.answer, k.deaf
	k.mu.Unlock()
	over := make(chan error, 1)
	go func() {
		for {
			m := new(lrs.LoadStatsRequest)
			if err := s.RecvMsg(m); err != nil {
				over <- nil
				return
			}
			k.mu.Lock()
			k.calls[n], k.at[n] = append(k.calls[n], m), time.Now()
			first := len(k.calls[n]) == 1
			k.mu.Unlock()
			if first && answer != nil {
				_ = s.SendMsg(answer) // receiving has the error
			}
			if deaf {
				return
			}
		}
	}()
	select {
	case err := <-over:
		return err
	case err := <-end:
		return err
	}
}

// see returns the reports of a call.
func (k *loadSink) see(call int) []*lrs.LoadStatsRequest {
	k.mu.Lock()
	defer k.mu.Unlock()
	if call >= len(k.calls) {
		return nil
	}
	return slices.Clone(k.calls[call])
}

// end ends the last call.
func (k *loadSink) end(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ends[len(k.ends)-1] <- err
}

func (k *loadSink) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.calls)
}

// issued adds up the requests of a cluster in all reports.
func (k *loadSink) issued(cluster string) (n uint64) {
	for call := range k.count() {
		for _, r := range k.see(call) {
			n += issuedIn(r, cluster)
		}
	}
	return n
}

func issuedIn(r *lrs.LoadStatsRequest, cluster string) (n uint64) {
	for _, c := range r.GetClusterStats() {
		for _, l := range c.GetUpstreamLocalityStats() {
			if c.GetClusterName() == cluster {
				n += l.GetTotalIssuedRequests()
			}
		}
	}
	return n
}

// last is the last report of the last call.
func (k *loadSink) last() *lrs.LoadStatsRequest {
	all := k.see(k.count() - 1)
	return all[len(all)-1]
}

func inProgress(r *lrs.LoadStatsRequest) (n uint64) {
	for _, c := range r.GetClusterStats() {
		for _, l := range c.GetUpstreamLocalityStats() {
			n += l.GetTotalRequestsInProgress()
		}
	}
	return n
}

// load is a report of one locality of a cluster.
func load(cluster string, issued, progress uint64) *lrs.LoadStatsRequest {
	return &lrs.LoadStatsRequest{ClusterStats: []*endpoint.ClusterStats{{ClusterName: cluster, LoadReportInterval: durationpb.New(10 * time.Second), UpstreamLocalityStats: []*endpoint.UpstreamLocalityStats{{
		Locality: &core.Locality{Region: "r"}, TotalIssuedRequests: issued, TotalSuccessfulRequests: issued, TotalRequestsInProgress: progress,
	}}}}}
}

func send(t *testing.T, s lrs.LoadReportingService_StreamLoadStatsClient, r *lrs.LoadStatsRequest) {
	t.Helper()
	if err := s.Send(r); err != nil {
		t.Fatal(err)
	}
}

// TestLoadIsSummed: 100 clients cost the control plane one call. It says the group's node, and nothing of load before the
// answer, which all clients get; then the sum of everything, once, and what is in progress with those that are there
// (LRS-4, LRS-5, LRS-7, LRS-8).
func TestLoadIsSummed(t *testing.T) {
	const clients, rounds = 100, 5
	k := sink(10*time.Second, "a")
	throughRelay(t, []string{sums, "upstream.node={id: relay}"}, k.serve, nil, func(w *passWorld) {
		var open []lrs.LoadReportingService_StreamLoadStatsClient
		for n := range clients {
			s := w.report(w.t.Context(), fmt.Sprint("client-", n))
			resp, err := s.Recv()
			if err != nil || !slices.Equal(resp.GetClusters(), []string{"a"}) || resp.GetLoadReportingInterval().AsDuration() != 10*time.Second {
				t.Fatalf("client %d was asked for %v (%v)", n, resp, err)
			}
			open = append(open, s)
		}
		begins := time.Now()
		time.Sleep(5 * time.Second) // between two reports of the relay's
		for range rounds {
			for n, s := range open {
				send(t, s, load("a", uint64(n), 2))
			}
			time.Sleep(10 * time.Second)
			if n := inProgress(k.last()); n != 2*clients {
				t.Errorf("%d requests are in progress, want %d", n, 2*clients)
			}
		}
		want := uint64(rounds * clients * (clients - 1) / 2)
		if got := k.issued("a"); k.count() != 1 || got != want {
			t.Errorf("%d requests were reported in %d calls, want %d in one", got, k.count(), want)
		}
		first := k.see(0)[0]
		if node := first.GetNode(); node.GetId() != "relay" || !slices.Contains(node.GetClientFeatures(), sumsAll) || len(first.GetClusterStats()) > 0 {
			t.Errorf("the first report is %v", first)
		}
		for i, r := range k.see(0)[1:] {
			every := r.GetClusterStats()[0].GetLoadReportInterval().AsDuration()
			if r.GetNode() != nil || every != 10*time.Second {
				t.Errorf("report %d has a node, or is of %v: %v", i+1, every, r)
			}
		}
		if n := len(k.see(0)) - 1; n != rounds || time.Since(begins) != (rounds*10+5)*time.Second {
			t.Errorf("%d reports in %v", n, time.Since(begins))
		}

		_ = open[0].CloseSend()
		ends(t, open[0], codes.Unknown, "EOF")
		time.Sleep(10 * time.Second)
		if n := inProgress(k.last()); n != 2*(clients-1) {
			t.Errorf("after one has left %d requests are in progress, want %d", n, 2*(clients-1))
		}
		if got := k.issued("a"); got != want {
			t.Errorf("after a report without load there are %d requests, want %d", got, want)
		}
	})
}

// TestLoadWaitsForTheControlPlane: while it is away, or has not answered, load is kept, and goes with the longer interval,
// and nothing goes twice (LRS-6, LRS-8). New clients are asked as the others were.
func TestLoadWaitsForTheControlPlane(t *testing.T) {
	k := sink(10*time.Second, "a")
	throughRelay(t, []string{sums}, k.serve, nil, func(w *passWorld) {
		s := w.report(w.t.Context(), "n")
		w.answers(s)
		send(t, s, load("a", 1, 3))
		time.Sleep(11 * time.Second)
		k.mu.Lock()
		k.answer = nil
		k.mu.Unlock()
		w.a.network.Down()
		for range 10 {
			send(t, s, load("a", 10, 4))
			time.Sleep(10 * time.Second)
		}
		late := w.report(w.t.Context(), "late")
		if w.answers(late) != "a" {
			t.Error("a client that comes in an outage is not asked as others were")
		}
		send(t, late, load("a", 100, 5))
		if n := k.issued("a"); n != 1 || k.count() != 1 {
			t.Errorf("%d requests were reported in %d calls before the control plane is back", n, k.count())
		}
		w.a.network.Up()
		time.Sleep(time.Minute)
		w.answers(w.report(metadata.AppendToOutgoingContext(w.t.Context(), hop.ViaHeader, "below"), "relay")) // has the call opened again
		time.Sleep(time.Second)
		if n := k.issued("a"); n != 1 || k.count() != 3 {
			t.Errorf("%d requests were reported in %d calls before the control plane has answered", n, k.count())
		}
		k.mu.Lock()
		k.answer = &lrs.LoadStatsResponse{Clusters: []string{"a"}, LoadReportingInterval: durationpb.New(10 * time.Second)}
		k.mu.Unlock()
		k.end(status.Error(codes.Unavailable, "restart"))
		time.Sleep(time.Minute)
		if n := k.issued("a"); n != 201 || k.count() != 4 {
			t.Errorf("%d requests were reported in %d calls, want 201 in 4", n, k.count())
		}
		whole := k.see(3)[1].GetClusterStats()[0]
		if d := whole.GetLoadReportInterval().AsDuration(); d < 3*time.Minute || d > 4*time.Minute || inProgress(k.last()) != 9 {
			t.Errorf("after the outage the report is of %v, with %d in progress: %v", d, inProgress(k.last()), whole)
		}
	})
}

// TestLoadComesBack: what cannot be sent is reported on the next call. What gRPC has taken is not, since it may have arrived
// (LRS-6).
func TestLoadComesBack(t *testing.T) {
	k := sink(10*time.Second, "a")
	k.answer.SendAllClusters, k.deaf = true, true
	throughRelay(t, []string{sums}, k.serve, nil, func(w *passWorld) {
		s := w.report(w.t.Context(), "n")
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)              // between two reports of the relay's
		for _, n := range []uint64{1, 10, 100} { // the first report fills the window
			send(t, s, load(strings.Repeat("c", 200_000), n, 1))
			time.Sleep(10 * time.Second)
		}
		k.mu.Lock()
		k.deaf = false
		k.mu.Unlock()
		k.end(status.Error(codes.Unavailable, "restart"))
		time.Sleep(time.Minute)
		if n := k.issued(strings.Repeat("c", 200_000)); n != 110 || k.count() != 2 {
			t.Errorf("%d requests were reported in %d calls, want 110 in 2", n, k.count())
		}
	})
}

// TestLoadOfGroups: each group has a call of its own, with its node and its headers (LRS-4, NODE-7, NODE-13).
func TestLoadOfGroups(t *testing.T) {
	k := sink(10*time.Second, "a")
	throughRelay(t, []string{sums, "groups.key=[cluster]", "groups.forward_headers=[x-token]"}, k.serve, nil, func(w *passWorld) {
		for _, of := range []string{"one", "two", "one"} {
			ctx := metadata.AppendToOutgoingContext(w.t.Context(), "x-token", of, "x-other", "stays", hop.ViaHeader, "first")
			s, err := w.load.StreamLoadStats(ctx)
			if err != nil {
				t.Fatal(err)
			}
			send(t, s, &lrs.LoadStatsRequest{Node: &core.Node{Id: "n", Cluster: of}})
			w.answers(s)
			send(t, s, load("a", 1, 0))
		}
		time.Sleep(11 * time.Second)
		if k.count() != 2 || issuedIn(k.see(0)[1], "a") != 2 || issuedIn(k.see(1)[1], "a") != 1 {
			t.Errorf("the reports are %v and %v", k.see(0), k.see(1))
		}
		for call, of := range []string{"one", "two"} {
			if node, h := k.see(call)[0].GetNode(), k.header[call]; node.GetCluster() != of || !slices.Equal(h.Get("x-token"), []string{of}) || h.Get("x-other") != nil || !slices.Equal(h.Get(hop.ViaHeader), []string{"first,me"}) {
				t.Errorf("group %s says node %v and headers %v", of, node, h)
			}
		}
	})
}

// TestLoadByNames: a client that does not understand send_all_clusters is asked for the names that the group has, and for
// others when that changes; one that does is asked once (LRS-4).
func TestLoadByNames(t *testing.T) {
	k := sink(10 * time.Second)
	k.answer.SendAllClusters = true
	throughRelay(t, []string{sums}, k.serve, nil, func(w *passWorld) {
		old := w.report(w.t.Context(), "old")
		if asked := w.answers(old); asked != "" {
			t.Errorf("before there are Clusters an old client is asked for %q", asked)
		}
		able, err := w.load.StreamLoadStats(w.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		send(t, able, &lrs.LoadStatsRequest{Node: &core.Node{Id: "new", ClientFeatures: []string{sumsAll}}})
		if resp, err := able.Recv(); err != nil || !resp.GetSendAllClusters() {
			t.Errorf("a client that understands it gets %v (%v)", resp, err)
		}
		w.open(w.dial(), "envoy", false)
		resp, err := old.Recv()
		if err != nil || resp.GetSendAllClusters() || !slices.Equal(resp.GetClusters(), []string{"a"}) {
			t.Errorf("once there are Clusters, an old client gets %v (%v)", resp, err)
		}
		send(t, able, load("b", 7, 0))
		send(t, old, load("a", 1, 0))
		time.Sleep(30 * time.Second)
		if k.issued("a") != 1 || k.issued("b") != 7 {
			t.Errorf("%d and %d requests were reported", k.issued("a"), k.issued("b"))
		}
		over := make(chan error, 1)
		go func() {
			_, err := able.Recv()
			over <- err
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case err := <-over:
			t.Errorf("it is asked again (%v)", err)
		default:
		}
	})
}

// TestLoadEnds: what clients have reported is not lost when they leave, when the configuration changes, or when the relay
// ends; a group without clients ends.
func TestLoadEnds(t *testing.T) {
	k := sink(10*time.Second, "a")
	throughRelay(t, []string{sums}, k.serve, nil, func(w *passWorld) {
		s := w.report(w.t.Context(), "n")
		w.answers(s)
		send(t, s, load("a", 1, 1))
		_ = s.CloseSend()
		ends(t, s, codes.Unknown, "EOF")
		synctest.Wait()
		if k.issued("a") != 1 || inProgress(k.last()) != 0 {
			t.Errorf("when the last client has left, the report is %v", k.last())
		}
		time.Sleep(30 * time.Second)
		s = w.report(w.t.Context(), "n") // within groups.linger
		w.answers(s)
		if k.count() != 1 {
			t.Error("a client that comes back has made another call")
		}
		send(t, s, load("a", 2, 1))
		synctest.Wait()
		w.reconfigure("passthrough=[{service: " + config.LoadReporting + "}]")
		ends(t, s, codes.Unavailable, "goes through no more, or in another way")
		w.answers(w.report(w.t.Context(), "through"))
		synctest.Wait()
		if k.issued("a") != 3 || k.count() != 2 {
			t.Errorf("%d requests in %d calls", k.issued("a"), k.count())
		}
		w.reconfigure(sums)
		s = w.report(w.t.Context(), "n")
		w.answers(s)
		_ = s.CloseSend()
		ends(t, s, codes.Unknown, "EOF")
		time.Sleep(2 * time.Minute)
		if n := w.a.open(); n != 0 {
			t.Errorf("%d calls are open without a client", n)
		}
		s = w.report(w.t.Context(), "n")
		w.answers(s)
		send(t, s, load("a", 4, 1))
		synctest.Wait()
	})
	if k.issued("a") != 7 {
		t.Errorf("%d requests were reported before the relay has ended, want 7", k.issued("a"))
	}
}

// TestRulesForLoad: a client is asked only for clusters that it may read, and its load of others is dropped, also when rules
// change; who is not admitted has no call (LRS-4, LRS-9).
func TestRulesForLoad(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(names string) {
		t.Helper()
		text := "rules: [{identity: anonymous, node: {id: 'good*'}, read: [{types: [CDS], names: [" + names + "]}]}, {identity: anonymous, node: {id: 'blind'}, read: [{types: [EDS], names: ['*']}]}]\n"
		if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	k, seen := sink(10*time.Second, "a", "b"), &dropped{}
	throughRelayWith(t, []string{sums, "authz.rules_file=" + rules}, Options{Loads: seen}, k.serve, nil, func(w *passWorld) {
		ends(t, w.report(w.t.Context(), "bad"), codes.PermissionDenied, "to present this node")
		if asked := w.answers(w.report(w.t.Context(), "blind")); asked != "" {
			t.Errorf("a client that may read no cluster is asked for %q", asked)
		}
		s := w.report(w.t.Context(), "good")
		if asked := w.answers(s); asked != "a" {
			t.Errorf("the client is asked for %q", asked)
		}
		send(t, s, load("a", 1, 0))
		send(t, s, load("b", 1, 0))
		time.Sleep(11 * time.Second)
		write("b")
		w.relay.ReadRules()
		time.Sleep(11 * time.Second)
		if asked := w.answers(s); asked != "b" {
			t.Errorf("under other rules the client is asked for %q", asked)
		}
		send(t, s, load("a", 1, 0))
		send(t, s, load("b", 5, 0))
		time.Sleep(11 * time.Second)
		if k.issued("a") != 1 || k.issued("b") != 5 || seen.of(loadreport.Forbidden) != 2 {
			t.Errorf("%d and %d requests were reported, and %d reports dropped", k.issued("a"), k.issued("b"), seen.of(loadreport.Forbidden))
		}
	})
}

// dropped counts what is in no sum.
type dropped struct {
	mu sync.Mutex
	n  map[loadreport.Reason]int
}

func (d *dropped) LoadReported(int) {}

func (d *dropped) LoadDropped(reason loadreport.Reason, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.n == nil {
		d.n = make(map[loadreport.Reason]int)
	}
	d.n[reason] += n
}

func (d *dropped) of(reason loadreport.Reason) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n[reason]
}

// TestLoadFollowsTheControlPlane: when another one is put to use, clients' calls stay, and their load goes there.
func TestLoadFollowsTheControlPlane(t *testing.T) {
	a, b := sink(10*time.Second, "a"), sink(10*time.Second, "a")
	throughRelay(t, []string{sums}, a.serve, b.serve, func(w *passWorld) {
		w.open(w.dial(), "envoy", false)
		time.Sleep(2 * time.Second)
		s := w.report(w.t.Context(), "n")
		w.answers(s)
		send(t, s, load("a", 1, 1))
		time.Sleep(11 * time.Second)
		w.a.network.Down()
		send(t, s, load("a", 2, 1))
		time.Sleep(3 * time.Minute)
		if a.issued("a") != 1 || b.issued("a") != 2 || w.relay.Calls()[config.LoadReporting] != 1 {
			t.Errorf("%d requests were reported to one, %d to the other", a.issued("a"), b.issued("a"))
		}
	})
}

// TestLoadIsRefused: what cannot be added up ends its call with the reason, and nobody else's.
func TestLoadIsRefused(t *testing.T) {
	k := sink(10*time.Second, "a")
	throughRelay(t, []string{sums, "groups.key=[cluster]", "groups.max=2"}, k.serve, nil, func(w *passWorld) {
		s := w.report(w.t.Context(), "n")
		w.answers(s)
		send(t, s, &lrs.LoadStatsRequest{Node: &core.Node{Id: "m"}}) // of the same group
		send(t, s, load("a", 1, 0))
		send(t, s, &lrs.LoadStatsRequest{Node: &core.Node{Id: "n", Cluster: "other"}})
		ends(t, s, codes.Aborted, "belongs to another group")

		call := func(method string, m any) grpc.ClientStream {
			s, err := w.conns[0].NewStream(w.t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/"+config.LoadReporting+"/"+method)
			if err != nil {
				t.Fatal(err)
			}
			_ = s.SendMsg(m) // receiving has the error
			return s
		}
		ends(t, call("Other", &lrs.LoadStatsRequest{Node: &core.Node{Id: "n"}}), codes.Unimplemented, "unknown method")
		bad := call("StreamLoadStats", &lrs.LoadStatsRequest{Node: &core.Node{Id: "n"}})
		if err := bad.RecvMsg(new(lrs.LoadStatsResponse)); err != nil {
			t.Fatal(err)
		}
		_ = bad.SendMsg(&lrs.LoadStatsResponse{Clusters: []string{"x"}}) // field 1 is no node
		ends(t, bad, codes.InvalidArgument, "cannot be read")

		for _, of := range []string{"two", "three"} {
			s, err := w.load.StreamLoadStats(w.t.Context())
			if err != nil {
				t.Fatal(err)
			}
			send(t, s, &lrs.LoadStatsRequest{Node: &core.Node{Id: "n", Cluster: of}})
			if of == "three" {
				ends(t, s, codes.ResourceExhausted, "groups.max")
			} else {
				w.answers(s)
			}
		}
		time.Sleep(11 * time.Second)
		if k.issued("a") != 1 {
			t.Errorf("%d requests were reported", k.issued("a"))
		}
	})
	lacks := func(grpc.ServerStream) error { return status.Error(codes.Unimplemented, "no such thing") }
	throughRelay(t, []string{sums}, lacks, nil, func(w *passWorld) {
		ends(t, w.report(w.t.Context(), "n"), codes.Unimplemented, "no such thing")
	})
}

// TestLoadMakesNoLoop: a call that comes back to its relay is refused, also if the way became longer after the relay's own
// call was opened (NODE-11).
func TestLoadMakesNoLoop(t *testing.T) {
	k := sink(10*time.Second, "a")
	throughRelay(t, []string{sums}, k.serve, nil, func(w *passWorld) {
		w.answers(w.report(w.t.Context(), "n"))
		w.answers(w.report(metadata.AppendToOutgoingContext(w.t.Context(), hop.ViaHeader, "below"), "relay"))
		synctest.Wait()
		if via := k.header[len(k.header)-1].Get(hop.ViaHeader); strings.Join(via, "") != "below,me" {
			t.Errorf("the way is %q", via)
		}
		ends(t, w.report(metadata.AppendToOutgoingContext(w.t.Context(), hop.ViaHeader, "below,me"), "n"), codes.FailedPrecondition, "break the loop")
	})
}
