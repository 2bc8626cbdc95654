package downstream

import (
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	cds "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// globCounter counts refused globs by what their clients learn.
type globCounter struct {
	nobody
	errors, nothing atomic.Int64
}

func (c *globCounter) ClientTypeRefused(_ cache.TypeURL, reason session.Reason, told session.Notice) {
	switch {
	case reason != session.Glob:
	case told == session.NoticeErrors:
		c.errors.Add(1)
	case told == session.NoticeNothing:
		c.nothing.Add(1)
	}
}

// TestGlobsAreWarnedOfOnce: however many SotW clients of a group ask for globs, over whatever method, the log says
// it once, and each is counted (NAME-11).
func TestGlobsAreWarnedOfOnce(t *testing.T) {
	const glob = "xdstp://cp/t/*"
	log, counter := new(page), new(globCounter)
	s := NewServer(ServerConfig{
		Config:      session.Config{MaxName: 100, MaxNames: 100},
		Credentials: insecure.NewCredentials(), Groups: oneGroup{fanout.NewHub(fanout.Config{Name: "edge"})}, MaxRequest: 1 << 20, MaxStreams: 10,
		Log: slog.New(slog.NewTextHandler(log, nil)), Observer: counter,
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		s.Close(0)
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	node := &core.Node{Id: "envoy-1"}
	for range 3 {
		stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, typ := range []cache.TypeURL{cache.Cluster, cache.Endpoint} {
			if err := stream.Send(&discovery.DiscoveryRequest{Node: node, TypeUrl: string(typ), ResourceNames: []string{glob}}); err != nil {
				t.Fatal(err)
			}
			r, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if e := r.GetResourceErrors(); len(e) != 1 || e[0].GetResourceName().GetName() != glob || codes.Code(e[0].GetErrorDetail().GetCode()) != codes.Unimplemented {
				t.Fatalf("the glob is answered with %v", r)
			}
		}
	}
	clusters := cds.NewClusterDiscoveryServiceClient(conn)
	r, err := clusters.FetchClusters(t.Context(), &discovery.DiscoveryRequest{Node: node, ResourceNames: []string{glob}})
	if err != nil || len(r.GetResourceErrors()) != 1 {
		t.Fatalf("a call is answered with %v, %v", r, err)
	}
	// The answer to a call replaces what the client has.
	_, err = clusters.FetchClusters(t.Context(), &discovery.DiscoveryRequest{Node: node, ResourceNames: []string{glob}, VersionInfo: "v"})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "glob") {
		t.Fatalf("a call that has something is answered with %v", err)
	}
	await(t, func() bool { return counter.errors.Load() == 7 && counter.nothing.Load() == 1 })
	if log.line("level=WARN", "xdstp globs", "group=edge", "first="+glob, "err=") == "" {
		t.Error("the log does not say it")
	}
	if n := strings.Count(log.text(), "level=WARN"); n != 1 {
		t.Errorf("there are %d warnings:\n%s", n, log.text())
	}
}
