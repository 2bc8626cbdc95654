package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// What the peers of TestNoSendRecvDeadlock push at each other in one round.
const (
	blobs      = 128 // clusters, together the state
	blobSize   = 64 << 10
	pushes     = 100 // requests of the client,
	pushNames  = 250 // with so many names each,
	nameLength = 300 // so that one alone exceeds a window
	tinyWindow = 64 << 10
)

// stubborn is a control plane that never reads while it writes: to every
// subscription it answers with its whole state, in a new version.
type stubborn struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	version atomic.Int64
	sent    atomic.Int64 // responses
}

func (s *stubborn) DeltaAggregatedResources(g discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	nonce := 0
	send := func(resp *discovery.DeltaDiscoveryResponse) error {
		nonce++
		resp.Nonce = strconv.Itoa(nonce)
		s.sent.Add(1)
		return g.Send(resp)
	}
	for {
		req, err := g.Recv()
		if err != nil {
			return err
		}
		if req.GetResponseNonce() != "" {
			continue
		}
		if names := req.GetResourceNamesSubscribe(); len(names) > 0 { // nothing bears these names
			if err := send(&discovery.DeltaDiscoveryResponse{TypeUrl: req.GetTypeUrl(), RemovedResources: names}); err != nil {
				return err
			}
		}
		version := s.version.Add(1)
		for i := range blobs {
			body := make([]byte, blobSize)
			copy(body, fmt.Sprint(version))
			if err := send(&discovery.DeltaDiscoveryResponse{TypeUrl: string(cache.Cluster), Resources: []*discovery.Resource{{
				Name: fmt.Sprint("blob-", i), Version: fmt.Sprint(version),
				Resource: &anypb.Any{TypeUrl: string(cache.Cluster), Value: body},
			}}}); err != nil {
				return err
			}
		}
	}
}

// TestNoSendRecvDeadlock (target R13): a control plane and a client that never read
// while they write push more at the relay, and at each other through it, than all
// windows take. Whoever waits for one of them to read while it writes stands still
// for ever; the relay reads.
func TestNoSendRecvDeadlock(t *testing.T) {
	t.Parallel()
	rounds := 3
	if n, err := strconv.Atoi(os.Getenv("E2E_DEADLOCK_ROUNDS")); err == nil {
		rounds = n
	}
	cp := new(stubborn)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64<<20), grpc.InitialWindowSize(tinyWindow), grpc.InitialConnWindowSize(tinyWindow))
	discovery.RegisterAggregatedDiscoveryServiceServer(server, cp)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	r := startRelay(t, l.Addr().String(), "timers.name_linger=0s", "upstream.coalesce_window=0s", "downstream.request_rate=0")
	conn := dial(t, r.addr, grpc.WithInitialWindowSize(tinyWindow), grpc.WithInitialConnWindowSize(tinyWindow))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}

	c := &pusher{stream: stream}
	done := make(chan error, 1)
	go func() { done <- c.run(rounds) }()
	// Progress is a message that gets through anywhere.
	longest, last, at := time.Duration(0), int64(-1), time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("R13: %d rounds of %d MiB in %v, %d responses; the longest time without a message was %v",
				rounds, blobs*blobSize>>20, time.Since(begin).Round(time.Millisecond), c.progress.Load(), longest.Round(time.Millisecond))
			return
		case <-tick.C:
		}
		if n := c.progress.Load() + cp.sent.Load(); n != last {
			last, at = n, time.Now()
		}
		if longest = max(longest, time.Since(at)); time.Since(at) > patience {
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			t.Fatalf("nothing has moved for %v, in round %d of %d", patience, c.round.Load(), rounds)
		}
	}
}

// pusher is a client that never reads while it writes.
type pusher struct {
	stream   discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	round    atomic.Int64
	progress atomic.Int64 // responses read, requests written
}

func (c *pusher) run(rounds int) error {
	if err := c.send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "pusher"}, TypeUrl: string(cache.Cluster)}); err != nil {
		return err
	}
	var before []string
	for round := range rounds {
		c.round.Store(int64(round))
		open := make(map[string]bool)
		var names []string
		for push := range pushes {
			req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Endpoint)}
			for i := range pushNames {
				name := fmt.Sprint(round, ".", push, ".", i, ".")
				name += strings.Repeat("x", nameLength-len(name))
				req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, name)
				open[name] = true
			}
			if push == 0 {
				req.ResourceNamesUnsubscribe = before
			}
			names = append(names, req.ResourceNamesSubscribe...)
			if err := c.send(req); err != nil {
				return err
			}
		}
		before = names
		for len(open) > 0 {
			resp, err := c.stream.Recv()
			if err != nil {
				return err
			}
			c.progress.Add(1)
			for _, name := range resp.GetRemovedResources() {
				delete(open, name)
			}
			if err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *pusher) send(req *discovery.DeltaDiscoveryRequest) error {
	c.progress.Add(1)
	return c.stream.Send(req)
}
