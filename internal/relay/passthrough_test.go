package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	lrs "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/hop"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// loadPlane is a control plane that has load reports, or whatever other makes of them, beside discovery, of which it
// has one resource a type.
type loadPlane struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer

	network *xdstest.Network
	server  *grpc.Server
	other   func(grpc.ServerStream) error // nil: there is nothing beside discovery

	mu    sync.Mutex
	calls int // of other services, open
}

func newLoadPlane(other func(grpc.ServerStream) error) *loadPlane {
	p := &loadPlane{network: xdstest.NewNetwork(), other: other}
	options := []grpc.ServerOption{grpc.StaticStreamWindowSize(64 << 10), grpc.StaticConnWindowSize(1 << 20)} // who does not read takes little
	if other != nil {
		options = append(options, grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			if method, _ := grpc.MethodFromServerStream(s); strings.HasPrefix(method, "/grpc.health.") {
				return status.Error(codes.Unimplemented, method)
			}
			p.count(1)
			defer p.count(-1)
			return p.other(s)
		}))
	}
	p.server = grpc.NewServer(options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(p.server, p)
	go func() { _ = p.server.Serve(p.network.Listener()) }() // an error is the listener's end
	return p
}

func (p *loadPlane) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls += n
}

func (p *loadPlane) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

func (p *loadPlane) DeltaAggregatedResources(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	for n := 0; ; n++ {
		req, err := s.Recv()
		if err != nil {
			return nil //nolint:nilerr // the relay is gone
		}
		if req.GetResponseNonce() == "" {
			_ = s.Send(&discovery.DeltaDiscoveryResponse{TypeUrl: req.GetTypeUrl(), Nonce: fmt.Sprint(n), Resources: []*discovery.Resource{ // Recv has the error
				{Name: "a", Version: "1", Resource: &anypb.Any{TypeUrl: req.GetTypeUrl()}},
			}})
		}
	}
}

// passWorld is a relay between two control planes, a:1 and b:1, and clients.
type passWorld struct {
	*world
	a, b *loadPlane
	load lrs.LoadReportingServiceClient
}

// throughRelay runs f in a bubble.
func throughRelay(t *testing.T, set []string, a, b func(grpc.ServerStream) error, f func(w *passWorld)) {
	t.Helper()
	throughRelayWith(t, set, Options{}, a, b, f)
}

func throughRelayWith(t *testing.T, set []string, o Options, a, b func(grpc.ServerStream) error, f func(w *passWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		set := append([]string{"upstream.address=a:1", "upstream.insecure=true", "upstream.fallbacks=[{address: 'b:1', insecure: true}]", "upstream.mode=delta", "passthrough=[{service: " + config.LoadReporting + "}]"}, set...)
		c, err := config.Load("", set)
		if err != nil {
			t.Fatal(err)
		}
		w := &passWorld{world: &world{t: t, down: xdstest.NewNetwork()}, a: newLoadPlane(a), b: newLoadPlane(b)}
		o.Hop, o.Follow, o.Dial = "me", certs.Options{NoNotify: true}, func(ctx context.Context, address string) (net.Conn, error) {
			if address == "a:1" {
				return w.a.network.Dial(ctx, "")
			}
			return w.b.network.Dial(ctx, "")
		}
		w.relay, err = New(c, o)
		if err != nil {
			t.Fatal(err)
		}
		w.relay.Serve(w.down.Listener())
		w.load = lrs.NewLoadReportingServiceClient(w.dial())
		f(w)
		for _, conn := range w.conns {
			conn.Close()
		}
		w.clients.Wait()
		w.relay.Close(0)
		w.a.server.Stop()
		w.b.server.Stop()
	})
}

func (w *passWorld) report(ctx context.Context, id string) lrs.LoadReportingService_StreamLoadStatsClient {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // longer than any test waits
	w.t.Cleanup(cancel)
	s, err := w.load.StreamLoadStats(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = s.Send(&lrs.LoadStatsRequest{Node: &core.Node{Id: id}}) // Recv has the error
	return s
}

// ends receives until the end of a call, which has to be of a status and say something.
func ends(t *testing.T, s grpc.ClientStream, code codes.Code, says string) {
	t.Helper()
	err := error(nil)
	for err == nil {
		err = s.RecvMsg(new(lrs.LoadStatsResponse))
	}
	if status.Code(err) != code || !strings.Contains(err.Error(), says) {
		t.Errorf("the call has ended with %v, want %v and %q", err, code, says)
	}
}

// accept takes in reports until the client ends the call, or is gone.
func accept(s grpc.ServerStream) error {
	for {
		if err := s.RecvMsg(new(lrs.LoadStatsRequest)); err != nil {
			return nil //nolint:nilerr // it ends as the client wants
		}
	}
}

// answering accepts, and answers the first report with a name.
func answering(name string) func(grpc.ServerStream) error {
	return func(s grpc.ServerStream) error {
		if err := s.RecvMsg(new(lrs.LoadStatsRequest)); err != nil {
			return err
		}
		if err := s.SendMsg(&lrs.LoadStatsResponse{Clusters: []string{name}}); err != nil {
			return err
		}
		return accept(s)
	}
}

// answers is whom a call got to.
func (w *passWorld) answers(s lrs.LoadReportingService_StreamLoadStatsClient) string {
	w.t.Helper()
	resp, err := s.Recv()
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Join(resp.GetClusters(), "")
}

// TestCallGoesThrough: messages go both ways as they are, node and unknown fields included; so do headers, half-close, the
// status with its details, and trailers. Of the client's headers only those that are listed go up (LRS-2).
func TestCallGoesThrough(t *testing.T) {
	report := func(n int) *lrs.LoadStatsRequest {
		m := &lrs.LoadStatsRequest{ClusterStats: []*endpoint.ClusterStats{{ClusterName: strings.Repeat("c", 40_000*n), TotalDroppedRequests: uint64(n)}}}
		if n == 0 {
			m.Node = &core.Node{Id: "n", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewNumberValue(1)}}}
		}
		m.ProtoReflect().SetUnknown([]byte{0xb8, 0x3e, 7}) // field 999
		return m
	}
	var got []*lrs.LoadStatsRequest
	var up metadata.MD
	plane := func(s grpc.ServerStream) error {
		up, _ = metadata.FromIncomingContext(s.Context())
		if err := s.SendHeader(metadata.Pairs("x-plane", "here")); err != nil {
			return err
		}
		for {
			m := new(lrs.LoadStatsRequest)
			if err := s.RecvMsg(m); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			got = append(got, m)
			if err := s.SendMsg(&lrs.LoadStatsResponse{Clusters: []string{fmt.Sprint(len(got))}}); err != nil {
				return err
			}
		}
		s.SetTrailer(metadata.Pairs("x-end", "1", "x-end", "2"))
		st, err := status.New(codes.OutOfRange, "enough").WithDetails(&errdetails.ErrorInfo{Reason: "because"})
		if err != nil {
			return err
		}
		return st.Err()
	}
	throughRelay(t, []string{"groups.forward_headers=[x-token]", "upstream.headers={x-own: mine}",
		"passthrough=[{service: " + config.LoadReporting + ", forward_headers: [x-tenant]}]"}, plane, nil, func(w *passWorld) {
		ctx := metadata.AppendToOutgoingContext(w.t.Context(), "x-token", "secret", "x-tenant", "t1", "x-tenant", "t2", "x-other", "stays", hop.ViaHeader, "first")
		s, err := w.load.StreamLoadStats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var sent []*lrs.LoadStatsRequest
		for n := range 4 {
			m := report(n)
			sent = append(sent, m)
			if err := s.Send(m); err != nil {
				t.Fatal(err)
			}
			if a := w.answers(s); a != fmt.Sprint(n+1) {
				t.Fatalf("answer %s to report %d", a, n)
			}
		}
		header, err := s.Header()
		if err != nil || !slices.Equal(header.Get("x-plane"), []string{"here"}) {
			t.Errorf("the headers are %v (%v)", header, err)
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		ends(t, s, codes.OutOfRange, "enough")
		if end := s.Trailer(); !slices.Equal(end.Get("x-end"), []string{"1", "2"}) {
			t.Errorf("the trailers are %v", end)
		}
		if _, err := s.Recv(); len(status.Convert(err).Details()) != 1 {
			t.Errorf("the status has lost its details: %v", err)
		}
		if len(got) != len(sent) {
			t.Fatalf("%d reports of %d have arrived", len(got), len(sent))
		}
		for i := range sent {
			if !proto.Equal(got[i], sent[i]) {
				t.Errorf("report %d is %v, and was %v", i, got[i], sent[i])
			}
		}
		for name, want := range map[string][]string{"x-token": {"secret"}, "x-tenant": {"t1", "t2"}, "x-own": {"mine"}, "x-other": nil, hop.ViaHeader: {"first,me"}} {
			if !slices.Equal(up.Get(name), want) {
				t.Errorf("the header %s went up as %q, want %q", name, up.Get(name), want)
			}
		}
	})
}

// TestCallIsCancelled: who gives up does so for both sides, and a deadline is the control plane's, too (LRS-2).
func TestCallIsCancelled(t *testing.T) {
	hangs := func(s grpc.ServerStream) error {
		<-s.Context().Done()
		return status.FromContextError(s.Context().Err()).Err()
	}
	throughRelay(t, nil, hangs, nil, func(w *passWorld) {
		ctx, cancel := context.WithCancel(w.t.Context())
		s := w.report(ctx, "n")
		synctest.Wait()
		if w.a.open() != 1 {
			t.Fatal("the call is not there")
		}
		cancel()
		synctest.Wait()
		if w.a.open() != 0 {
			t.Error("the client has cancelled, and the control plane does not know")
		}
		ends(t, s, codes.Canceled, "")

		ctx, cancel = context.WithTimeout(w.t.Context(), time.Minute)
		defer cancel()
		begins := time.Now()
		s = w.report(ctx, "n")
		ends(t, s, codes.DeadlineExceeded, "")
		synctest.Wait()
		if after := time.Since(begins); after != time.Minute || w.a.open() != 0 || w.relay.Calls()[config.LoadReporting] != 0 {
			t.Errorf("after %v %d calls are open there, and %v here", after, w.a.open(), w.relay.Calls())
		}
	})
}

// TestCallsFollowTheControlPlane: calls go to the control plane that discovery uses, and end when another one is put to
// use, by failover or in the configuration.
func TestCallsFollowTheControlPlane(t *testing.T) {
	throughRelay(t, nil, answering("a"), answering("b"), func(w *passWorld) {
		w.open(w.dial(), "envoy", false)
		time.Sleep(2 * time.Second)
		s := w.report(w.t.Context(), "n")
		if to := w.answers(s); to != "a" {
			t.Fatalf("the call went to %s", to)
		}
		w.reconfigure("passthrough=[{service: "+config.LoadReporting+"}, {service: x.Y}]", "log.level=debug")
		time.Sleep(2 * time.Second)
		if w.a.open() != 1 {
			t.Error("a call has ended because of a setting that does not concern it")
		}
		w.reconfigure("upstream.max_receive_bytes=32MiB") // the connections are made again
		ends(t, s, codes.Unavailable, "the control plane a:1 is not in use any more, or its settings have changed")
		s = w.report(w.t.Context(), "n")
		if to := w.answers(s); to != "a" {
			t.Fatalf("the call went to %s", to)
		}
		w.a.network.Down()
		ends(t, s, codes.Unavailable, "")
		time.Sleep(2 * time.Minute)
		s = w.report(w.t.Context(), "n")
		if to := w.answers(s); to != "b" {
			t.Errorf("after the failover the call went to %s", to)
		}
		w.a.network.Up()
		ends(t, s, codes.Unavailable, "the control plane b:1 is not in use any more")
		s = w.report(w.t.Context(), "n")
		if to := w.answers(s); to != "a" {
			t.Errorf("after the failback the call went to %s", to)
		}
		w.reconfigure("upstream.address=b:1", "upstream.fallbacks=[]")
		ends(t, s, codes.Unavailable, "the control plane a:1 is not in use any more")
		if to := w.answers(w.report(w.t.Context(), "n")); to != "b" {
			t.Errorf("the call went to %s", to)
		}
	})
}

// TestServicesAreListed: calls of what is not listed, not any more, or not there, are unimplemented; the relay says the
// former, and the control plane the latter (LRS-1).
func TestServicesAreListed(t *testing.T) {
	throughRelay(t, nil, nil, nil, func(w *passWorld) {
		ends(t, w.report(w.t.Context(), "n"), codes.Unimplemented, "unknown service "+config.LoadReporting)
	})
	throughRelay(t, []string{"passthrough=[]"}, answering("a"), nil, func(w *passWorld) {
		ends(t, w.report(w.t.Context(), "n"), codes.Unimplemented, "if they are listed in passthrough")
		w.reconfigure("passthrough=[{service: " + config.LoadReporting + ", max_calls: 1}]")
		s := w.report(w.t.Context(), "n")
		w.answers(s)
		ends(t, w.report(w.t.Context(), "n"), codes.ResourceExhausted, "there are 1 calls of "+config.LoadReporting+", and this client has its share; see passthrough[].max_calls")
		w.reconfigure("passthrough=[{service: " + config.LoadReporting + ", max_calls: 0}]")
		ends(t, s, codes.Unavailable, "goes through no more")
		synctest.Wait() // for its place, which is given back after the client is told
		ends(t, w.report(w.t.Context(), "n"), codes.Unimplemented, "")
		w.reconfigure("passthrough=[{service: " + config.LoadReporting + ", max_calls: 1}]")
		w.answers(w.report(w.t.Context(), "n"))
	})
	throughRelay(t, []string{"passthrough=[]", "groups.profile=sidecar"}, answering("a"), nil, func(w *passWorld) {
		w.answers(w.report(w.t.Context(), "n"))
	})
}

// TestOwnServicesGoNowhere: no service that the relay has can be listed.
func TestOwnServicesGoNowhere(t *testing.T) {
	throughRelay(t, nil, nil, nil, func(w *passWorld) {
		for _, method := range w.relay.Methods() {
			service, _, _ := strings.Cut(method, "/")
			if service == config.LoadReporting {
				continue
			}
			if _, err := config.Load("", []string{"passthrough=[{service: " + service + "}]"}); err == nil || !strings.Contains(err.Error(), "has itself") {
				t.Errorf("%s can be listed: %v", service, err)
			}
		}
		if !slices.Contains(w.relay.Methods(), config.LoadReporting+"/*") {
			t.Error("what goes through is not listed among the methods")
		}
	})
}

// TestCallsAndDiscoveryAreApart: neither's failure ends the other, and neither takes the other's room (LRS-3).
func TestCallsAndDiscoveryAreApart(t *testing.T) {
	throughRelay(t, []string{"downstream.max_streams=2", "upstream.max_connections=1", "upstream.max_streams_per_connection=3",
		"passthrough=[{service: " + config.LoadReporting + ", max_calls: 2}]"}, answering("a"), nil, func(w *passWorld) {
		first, second := w.report(w.t.Context(), "1"), w.report(w.t.Context(), "2")
		w.answers(first)
		w.answers(second)
		one, two := w.open(w.dial(), "one", false), w.open(w.dial(), "two", false)
		time.Sleep(time.Second)
		for _, c := range []*client{one, two} {
			c.see(func() {
				if c.err != nil || c.responses == 0 {
					t.Errorf("calls have cost a stream of discovery its room: %d responses, %v", c.responses, c.err)
				}
			})
		}
		if n := w.relay.Count(); n != 2 || w.relay.Calls()[config.LoadReporting] != 2 {
			t.Errorf("%d streams and %v calls are open", n, w.relay.Calls())
		}
		if err := first.CloseSend(); err != nil {
			t.Fatal(err)
		}
		ends(t, first, codes.Unknown, io.EOF.Error())
		_ = one.stream.CloseSend()
		time.Sleep(time.Second)
		if _, err := two.over(); err != nil || w.relay.Calls()[config.LoadReporting] != 1 {
			t.Errorf("a stream has ended with another one (%v), or a call: %v", err, w.relay.Calls())
		}
	})
}

// TestControlPlaneReadsNoReports: it holds up the calls, and no stream on the same connection, however many calls there are
// (LRS-3, G6).
func TestControlPlaneReadsNoReports(t *testing.T) {
	hangs := func(s grpc.ServerStream) error {
		<-s.Context().Done()
		return nil
	}
	throughRelay(t, []string{"downstream.max_request_bytes=64KiB", "downstream.max_inflight_bytes=1MiB"}, hangs, nil, func(w *passWorld) {
		ctx, cancel := context.WithCancel(w.t.Context())
		large := &lrs.LoadStatsRequest{ClusterStats: []*endpoint.ClusterStats{{ClusterName: strings.Repeat("c", 10_000)}}}
		for range 40 { // twice what may be in flight, on the connections' windows alone
			w.load = lrs.NewLoadReportingServiceClient(w.dial())
			s := w.report(ctx, "n")
			w.clients.Go(func() {
				for s.Send(large) == nil {
				}
			})
		}
		time.Sleep(10 * time.Second)
		conn := w.conns[len(w.conns)-1]
		c := w.open(conn, "envoy", false) // on the connection of a call that waits
		time.Sleep(time.Second)
		c.see(func() {
			if c.responses == 0 || c.err != nil {
				t.Errorf("discovery had %d responses beside calls that wait for the control plane (%v)", c.responses, c.err)
			}
		})
		time.Sleep(2 * time.Minute)
		if n := w.relay.Calls()[config.LoadReporting]; n != 40 {
			t.Errorf("of 40 calls that wait %d are left", n)
		}
		cancel()
	})
}

// TestRulesForCalls: a rule has to admit the node of a load report, each one that the call says, and also when rules
// change; of another service it has to admit the identity (NODE-15).
func TestRulesForCalls(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(identity, id string) {
		t.Helper()
		text := fmt.Sprintf("rules: [{identity: %s, node: {id: '%s'}, read: [{types: [CDS], names: ['*']}]}]\n", identity, id)
		if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("anonymous", "good*")
	set := []string{"authz.rules_file=" + rules, "passthrough=[{service: " + config.LoadReporting + "}, {service: x.Other}]"}
	throughRelay(t, set, answering("a"), nil, func(w *passWorld) {
		ends(t, w.report(w.t.Context(), "bad"), codes.PermissionDenied, "to present this node")
		s := w.report(w.t.Context(), "good1")
		w.answers(s)
		if err := s.Send(&lrs.LoadStatsRequest{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&lrs.LoadStatsRequest{Node: &core.Node{Id: "good2"}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if w.a.open() != 1 {
			t.Fatal("a report with a node that is admitted, or with none, has ended the call")
		}
		if err := s.Send(&lrs.LoadStatsRequest{Node: &core.Node{Id: "bad"}}); err != nil {
			t.Fatal(err)
		}
		ends(t, s, codes.PermissionDenied, "to present this node")

		s = w.report(w.t.Context(), "good1")
		w.answers(s)
		write("anonymous", "better*")
		w.relay.ReadRules()
		ends(t, s, codes.PermissionDenied, "to present this node")
		w.answers(w.report(w.t.Context(), "better"))

		other := func() grpc.ClientStream {
			s, err := w.conns[0].NewStream(w.t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/x.Other/Any")
			if err != nil {
				t.Fatal(err)
			}
			_ = s.SendMsg(&lrs.LoadStatsRequest{Node: &core.Node{Id: "bad"}}) // it is nothing that the relay knows
			return s
		}
		call := other()
		if err := call.RecvMsg(new(lrs.LoadStatsResponse)); err != nil {
			t.Fatal(err)
		}
		write("spiffe://td/other", "better*")
		w.relay.ReadRules()
		ends(t, call, codes.PermissionDenied, "names \"anonymous\"")
		ends(t, other(), codes.PermissionDenied, "names \"anonymous\"")
	})
}

// TestCallClaimsAnIdentity: no client says whose client it is; what it says goes up as it is (NODE-6).
func TestCallClaimsAnIdentity(t *testing.T) {
	throughRelay(t, nil, answering("a"), nil, func(w *passWorld) {
		s, err := w.load.StreamLoadStats(w.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		node := &core.Node{Id: "n", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{config.ClientIdentity: structpb.NewStringValue("spiffe://a/b")}}}
		if err := s.Send(&lrs.LoadStatsRequest{Node: node}); err != nil {
			t.Fatal(err)
		}
		ends(t, s, codes.PermissionDenied, config.ClientIdentity)
	})
}

// TestBadCalls: what cannot go through is refused with the reason.
func TestBadCalls(t *testing.T) {
	throughRelay(t, []string{"downstream.max_request_bytes=64KiB", "downstream.max_inflight_bytes=1MiB"}, answering("a"), nil, func(w *passWorld) {
		s := w.report(w.t.Context(), "n")
		w.answers(s)
		_ = s.Send(&lrs.LoadStatsRequest{ClusterStats: []*endpoint.ClusterStats{{ClusterName: strings.Repeat("c", 70_000)}}})
		ends(t, s, codes.ResourceExhausted, "raise downstream.max_request_bytes")

		s, err := w.load.StreamLoadStats(w.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = s.CloseSend()
		ends(t, s, codes.InvalidArgument, "before its first message")

		loop := metadata.AppendToOutgoingContext(w.t.Context(), hop.ViaHeader, "me")
		ends(t, w.report(loop, "n"), codes.FailedPrecondition, "break the loop")

		s = w.report(w.t.Context(), "n")
		w.answers(s)
		w.relay.StartDrain(true, 0)
		ends(t, s, codes.Unavailable, "an operator drains this relay")
		ends(t, w.report(w.t.Context(), "n"), codes.Unavailable, "an operator drains this relay")
		w.relay.StopDrain()
	})
}
