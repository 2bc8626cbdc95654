package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/xds"
)

// bootstrap is what tells grpc-go where its management server is. Everything is
// found through it, nothing through the environment, so that many can run in one
// process.
func bootstrap(relay, node string) []byte {
	return fmt.Appendf(nil, `{
		"xds_servers": [{
			"server_uri": %q,
			"channel_creds": [{"type": "insecure"}],
			"server_features": ["xds_v3"]
		}],
		"node": {"id": %q},
		"server_listener_resource_name_template": %q
	}`, relay, node, serverListenerPrefix+"%s")
}

// serverListenerPrefix is how the name of a gRPC server's listener begins; its
// address follows.
const serverListenerPrefix = "grpc/server?xds.resource.listening_address="

// backend is a plain gRPC server that answers with its own name.
type backend struct {
	testgrpc.UnimplementedTestServiceServer
	name string
}

func (b backend) UnaryCall(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{ServerId: b.name}, nil
}

// startBackend serves until the test ends and returns its address.
func startBackend(t testing.TB, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(s, backend{name: name})
	serve(t, l, s)
	return l.Addr().String()
}

// server is a *grpc.Server or an *xds.GRPCServer.
type server interface {
	Serve(net.Listener) error
	Stop()
}

func serve(t testing.TB, l net.Listener, s server) {
	var serves sync.WaitGroup
	serves.Go(func() {
		if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() {
		s.Stop()
		serves.Wait()
	})
}

// app is a gRPC application that finds its service through xDS.
type app struct {
	conn   *grpc.ClientConn
	client testgrpc.TestServiceClient
}

// startApp connects to a service by the name of its listener.
func startApp(t testing.TB, relay, node, service string) *app {
	t.Helper()
	builder, err := xds.NewXDSResolverWithConfigForTesting(bootstrap(relay, node))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///"+service, grpc.WithResolvers(builder),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &app{conn, testgrpc.NewTestServiceClient(conn)}
}

// Call makes one RPC and tells who answered.
func (a *app) Call() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := a.client.UnaryCall(ctx, &testgrpc.SimpleRequest{}, grpc.WaitForReady(true))
	return r.GetServerId(), err
}

// Reaches complains unless an RPC is answered by a backend.
func (a *app) Reaches(name string) error {
	got, err := a.Call()
	if err != nil {
		return fmt.Errorf("RPC to %s: %w", name, err)
	}
	return is("RPC answered by", got, name)
}

// xdsServer is a gRPC server that takes its listener from xDS.
type xdsServer struct {
	addr string

	mu    sync.Mutex
	mode  connectivity.ServingMode
	why   error
	modes []connectivity.ServingMode
}

// startXDSServer serves a backend once its listener has come.
func startXDSServer(t testing.TB, relay, node, name string) *xdsServer {
	t.Helper()
	x := &xdsServer{}
	s, err := xds.NewGRPCServer(
		xds.BootstrapContentsForTesting(bootstrap(relay, node)),
		grpc.Creds(insecure.NewCredentials()),
		xds.ServingModeCallback(func(_ net.Addr, args xds.ServingModeChangeArgs) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.mode, x.why = args.Mode, args.Err
			x.modes = append(x.modes, args.Mode)
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	testgrpc.RegisterTestServiceServer(s, backend{name: name})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x.addr = l.Addr().String()
	serve(t, l, s)
	return x
}

// Serves complains unless the server serves.
func (x *xdsServer) Serves() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mode != connectivity.ServingModeServing {
		return fmt.Errorf("the xDS server is in mode %v: %v", x.mode, x.why)
	}
	return nil
}

// callDirectly makes one RPC without xDS.
func callDirectly(t testing.TB, address string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	r, err := testgrpc.NewTestServiceClient(dial(t, address)).UnaryCall(ctx, &testgrpc.SimpleRequest{})
	return r.GetServerId(), err
}
