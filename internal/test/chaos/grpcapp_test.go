//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/xds"
)

// backend is a plain gRPC server, to which all services lead.
type backend struct {
	testgrpc.UnimplementedTestServiceServer
}

func (backend) UnaryCall(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{}, nil
}

// startBackend serves until the test ends, and returns its address.
func startBackend(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(s, backend{})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("backend: %v", err)
		}
	})
	return l.Addr().String()
}

// apps are gRPC applications that find services through xDS: grpc-go's own client,
// one each, with a stream of its own to the relay. They call without a pause worth
// the name until the test ends.
type apps struct {
	t      testing.TB
	target string
	ctx    context.Context
	work   sync.WaitGroup
	all    []*app
}

// app is one of them.
type app struct {
	service string
	client  testgrpc.TestServiceClient

	mu       sync.Mutex
	began    time.Time
	answered time.Time // for the first time
	answers  int
	failures int
	last     error
	denials  []string // failures that say that something does not exist
}

// denying is what grpc-go says of a resource that the relay has told it is gone,
// and of one that it has heard nothing of for 15 s on an open stream.
var denying = regexp.MustCompile(`does not exist|has been removed|not found`)

func newApps(t testing.TB, target string) *apps {
	ctx, cancel := context.WithCancel(context.Background())
	a := &apps{t: t, target: target, ctx: ctx}
	t.Cleanup(func() {
		cancel()
		a.work.Wait()
	})
	return a
}

// Start starts one that calls a service.
func (a *apps) Start(service string) *app {
	a.t.Helper()
	builder, err := xds.NewXDSResolverWithConfigForTesting(fmt.Appendf(nil, `{
		"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
		"node": {"id": "app-%d"}
	}`, a.target, len(a.all)))
	if err != nil {
		a.t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///"+service, grpc.WithResolvers(builder),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		a.t.Fatal(err)
	}
	p := &app{service: service, client: testgrpc.NewTestServiceClient(conn), began: time.Now()}
	a.all = append(a.all, p)
	a.work.Go(func() {
		defer conn.Close()
		for ok := true; ok; ok = pause(a.ctx, 100*time.Millisecond) {
			p.call(a.ctx)
		}
	})
	return p
}

// call makes one RPC, which fails as soon as grpc-go knows that it must.
func (p *app) call(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := p.client.UnaryCall(ctx, &testgrpc.SimpleRequest{})
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		if p.answers++; p.answers == 1 {
			p.answered = time.Now()
		}
		return
	}
	p.failures++
	p.last = err
	if denying.MatchString(err.Error()) {
		p.denials = append(p.denials, fmt.Sprintf("%s, %.1f s after it began: %v", p.service, time.Since(p.began).Seconds(), err))
	}
}

// missing complains until the application has been answered.
func (p *app) missing() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answers == 0 {
		return fmt.Errorf("nobody answers for %s: %v", p.service, p.last)
	}
	return nil
}

// reach waits until some of them have been answered, and tells how long that took.
func (a *apps) reach(some []*app) time.Duration {
	a.t.Helper()
	return eventually(a.t, func() error {
		for len(some) > 0 {
			if err := some[0].missing(); err != nil {
				return err
			}
			some = some[1:]
		}
		return nil
	})
}

// judge adds what became of their calls.
func (a *apps) judge(r *report) {
	r.t.Helper()
	denied, answers, failures := 0, 0, 0
	for _, p := range a.all {
		p.mu.Lock()
		answers, failures = answers+p.answers, failures+p.failures
		if denied += len(p.denials); len(p.denials) > 0 {
			r.t.Logf("%d times %s", len(p.denials), p.denials[0])
		}
		p.mu.Unlock()
	}
	r.tell("gRPC clients", float64(len(a.all)), "")
	r.tell("their calls that were answered", float64(answers), "")
	r.tell("their calls that failed, while there was nothing to call", float64(failures), "")
	r.none(`calls that failed because something "does not exist" or "has been removed"`, int64(denied))
}
