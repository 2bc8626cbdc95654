package admin

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	csdsv2 "github.com/envoyproxy/go-control-plane/envoy/service/status/v2"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/csds"
	"github.com/xds-relay/xds-relay/internal/descriptors"
)

// face serves the operator's face of a relay on a network. It ends with the test.
func face(t *testing.T, network, address string, shows config.CSDS) (at string, r described) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	host := ""
	if network == "tcp" {
		host = "127.0.0.1"
	}
	r = newDescribed()
	m := NewMetrics(ReadBuild("test"))
	m.Attach(r)
	log := slog.New(slog.DiscardHandler)
	s := Serve(l, NewHandler(r, m, HandlerOptions{Host: host, Log: log, CSDS: func() config.CSDS { return shows }}), log)
	t.Cleanup(s.Close)
	return l.Addr().String(), r
}

// dial connects a tool to it.
func dial(t *testing.T, target string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// everyNode matches every client.
func everyNode() *discovery.ClientStatusRequest {
	return &discovery.ClientStatusRequest{NodeMatchers: []*matcher.NodeMatcher{{}}}
}

// TestTools: on a TCP address and on a Unix socket tools get what they ask for, and HTTP/1 goes on beside it.
func TestTools(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			target, dialer := "", net.Dialer{}
			via := &http.Transport{DisableKeepAlives: true}
			if network == "tcp" {
				target, _ = face(t, network, "127.0.0.1:0", config.CSDSStatus)
			} else {
				face(t, network, socket, config.CSDSStatus)
				target = "unix://" + socket
				via.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
					return dialer.DialContext(ctx, network, socket)
				}
			}
			tools(t, dial(t, target))
			at := target
			if network == "unix" {
				at = "localhost"
			}
			resp, err := (&http.Client{Transport: via}).Get("http://" + at + "/livez")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "live\n" {
				t.Errorf("/livez: %q, %v", body, err)
			}
		})
	}
}

// tools makes the calls that grpcdebug, grpcurl and grpc_health_probe make.
func tools(t *testing.T, conn *grpc.ClientConn) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	states := discovery.NewClientStatusDiscoveryServiceClient(conn)
	if resp, err := states.FetchClientStatus(ctx, &discovery.ClientStatusRequest{}); err != nil || len(resp.GetConfig()) != 1 || resp.GetConfig()[0].GetClientScope() != "default" {
		t.Errorf("CSDS: %v, %v", resp, err)
	}
	stream, err := states.StreamClientStatus(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := stream.Send(everyNode()); err != nil {
			t.Fatal(err)
		}
		if resp, err := stream.Recv(); err != nil || len(resp.GetConfig()) != 1 || resp.GetConfig()[0].GetNode().GetId() != "node-1" {
			t.Errorf("CSDS on a stream: %v, %v", resp, err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("the end of a stream: %v", err)
	}
	if err := conn.Invoke(ctx, csdsv2.ClientStatusDiscoveryService_FetchClientStatus_FullMethodName, &csdsv2.ClientStatusRequest{}, &csdsv2.ClientStatusResponse{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("CSDS v2: %v", err)
	}

	if resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", resp, err)
	}
	zed := channelz.NewChannelzClient(conn)
	servers, err := zed.GetServers(ctx, &channelz.GetServersRequest{})
	if err != nil || len(servers.GetServer()) == 0 {
		t.Fatalf("channelz: %v, %v", servers, err)
	}
	if resp, err := zed.GetServer(ctx, &channelz.GetServerRequest{ServerId: servers.GetServer()[0].GetRef().GetServerId()}); err != nil {
		t.Errorf("channelz: %v, %v", resp, err)
	}
	if channels, err := zed.GetTopChannels(ctx, &channelz.GetTopChannelsRequest{}); err != nil || len(channels.GetChannel()) == 0 {
		t.Errorf("channelz: %v, %v", channels, err)
	}
	reflects(t, ctx, conn)
}

// reflects lists the services, as grpcurl does, in both versions.
func reflects(t *testing.T, ctx context.Context, conn *grpc.ClientConn) {
	want := []string{"envoy.service.status.v3.ClientStatusDiscoveryService", "grpc.channelz.v1.Channelz", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
	s, err := reflection.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	_ = s.Send(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_ListServices{}}) // Recv has the reason
	list, err := s.Recv()
	for _, service := range list.GetListServicesResponse().GetService() {
		got = append(got, service.GetName())
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("reflection: %v, %v", got, err)
	}
	_ = s.Send(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: want[0]}}) // as above
	if file, err := s.Recv(); err != nil || len(file.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("reflection of a service: %v, %v", file, err)
	}
	old, err := alpha.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = old.Send(&alpha.ServerReflectionRequest{MessageRequest: &alpha.ServerReflectionRequest_ListServices{}}) //nolint:staticcheck // tools of some years speak it
	if list, err := old.Recv(); err != nil || !strings.Contains(list.String(), want[0]) {
		t.Errorf("reflection of version alpha: %v, %v", list, err)
	}
}

// TestToolsAreForThisHost: what holds for HTTP of the host and the origin holds for gRPC, and the refusal says why.
func TestToolsAreForThisHost(t *testing.T) {
	at, _ := face(t, "tcp", "127.0.0.1:0", config.CSDSStatus)
	ask := func(authority string, headers ...string) error {
		options := []grpc.DialOption{grpc.WithUserAgent("test")}
		if authority != "" {
			options = append(options, grpc.WithAuthority(authority))
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), headers...)
		_, err := healthpb.NewHealthClient(dial(t, at, options...)).Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	}
	if err := ask("evil.example"); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), `this is not "evil.example"; ask for localhost`) {
		t.Errorf("for another host: %v", err)
	}
	if err := ask("", "origin", "http://evil.example"); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "cross-origin") {
		t.Errorf("from another origin: %v", err)
	}
	for _, authority := range []string{"", "localhost", "localhost:1", "127.0.0.1:18001"} {
		if err := ask(authority); err != nil {
			t.Errorf("for %q: %v", authority, err)
		}
	}
}

// TestOnlyGRPCIsGRPC: what only looks like it is answered, or refused, as HTTP is.
func TestOnlyGRPCIsGRPC(t *testing.T) {
	at, _ := face(t, "tcp", "127.0.0.1:0", config.CSDSStatus)
	for _, tt := range []struct {
		method, path, contentType string
		two                       bool
		code                      int
	}{
		{"GET", "/livez", "application/grpc-web", true, 200},
		{"GET", "/livez", "application/grpc", false, 200}, // it is not HTTP/2
		{"GET", "/livez", "", true, 200},
		{"GET", "/livez", "application/grpc", true, 405},
		{"POST", csds.Path, "application/json", true, 200},
		{"GET", csds.Path, "", false, 405},
		{"POST", healthpb.Health_Check_FullMethodName, "application/grpc-web", true, 405},
	} {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!tt.two)
		protocols.SetUnencryptedHTTP2(tt.two)
		transport := &http.Transport{Protocols: protocols}
		req, err := http.NewRequestWithContext(t.Context(), tt.method, "http://"+at+tt.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", tt.contentType)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatalf("%+v: %v", tt, err)
		}
		resp.Body.Close()
		transport.CloseIdleConnections()
		if resp.StatusCode != tt.code || resp.ProtoMajor == 2 != tt.two {
			t.Errorf("%+v: %s %s", tt, resp.Proto, resp.Status)
		}
	}
}

// TestNothingForEverybody: who may see probes and metrics alone gets no gRPC.
func TestNothingForEverybody(t *testing.T) {
	r := newDescribed()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := NewProbes(r, NewMetrics(ReadBuild("test")))
	s := Serve(l, f, slog.New(slog.DiscardHandler))
	defer s.Close()
	if _, err := healthpb.NewHealthClient(dial(t, l.Addr().String())).Check(t.Context(), &healthpb.HealthCheckRequest{}); err == nil || len(f.Methods()) > 0 {
		t.Errorf("it answers %v, %v", err, f.Methods())
	}
}

// TestHealthIsWatched: a change is told at once, watches beyond the bound are refused, and a server that ends does not
// wait for those who watch.
func TestHealthIsWatched(t *testing.T) {
	at, r := face(t, "tcp", "127.0.0.1:0", config.CSDSStatus)
	watch := func(conn *grpc.ClientConn) (grpc.ServerStreamingClient[healthpb.HealthCheckResponse], error) {
		w, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Recv()
		return w, err
	}
	conn := dial(t, at)
	first, err := watch(conn)
	if err != nil {
		t.Fatal(err)
	}
	r.health.(*grpchealth.Server).SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	if resp, err := first.Recv(); err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("it says %v, %v", resp, err)
	}
	for i := range descriptors.ForHTTP(descriptors.Limit()) {
		if i%16 == 15 {
			conn = dial(t, at)
		}
		if _, err = watch(conn); err != nil {
			break
		}
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "use Check") {
		t.Errorf("too many watch, and are told %v", err)
	}
}

// TestCallsHaveAnEnd: CSDS calls that nobody goes on with leave room for others, since a stream without requests ends.
func TestCallsHaveAnEnd(t *testing.T) {
	at, _ := face(t, "tcp", "127.0.0.1:0", config.CSDSStatus)
	client := discovery.NewClientStatusDiscoveryServiceClient(dial(t, at))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 8 {
		s, err := client.StreamClientStatus(ctx)
		if err == nil {
			err = s.Send(&discovery.ClientStatusRequest{})
		}
		if err == nil {
			_, err = s.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.FetchClientStatus(t.Context(), &discovery.ClientStatusRequest{}); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "8 CSDS calls are open") {
		t.Errorf("the ninth call: %v", err)
	}
	cancel()
	for {
		_, err := client.FetchClientStatus(t.Context(), &discovery.ClientStatusRequest{})
		if err == nil {
			break // the streams have ended
		}
		if status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
	}
}

// timed is a response whose time can be set, as the HTTP server's can.
type timed struct {
	*httptest.ResponseRecorder
	set chan time.Time
}

func (w *timed) SetReadDeadline(at time.Time) error  { return w.SetWriteDeadline(at) }
func (w *timed) SetWriteDeadline(at time.Time) error { w.set <- at; return nil }

// TestCallsThatLast: the HTTP server's time for a request does not hold for a health check that is watched, and begins
// again with each request of a CSDS stream.
func TestCallsThatLast(t *testing.T) {
	g := newServices(newDescribed(), nil)
	defer g.close()
	for method, lasts := range map[string]bool{healthpb.Health_Watch_FullMethodName: true, discovery.ClientStatusDiscoveryService_StreamClientStatus_FullMethodName: false} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req := httptest.NewRequest("POST", method, strings.NewReader("\x00\x00\x00\x00\x00")).WithContext(ctx)
		req.Header.Set("Content-Type", "application/grpc")
		req.ProtoMajor = 2
		w := &timed{httptest.NewRecorder(), make(chan time.Time, 100)}
		over := make(chan struct{})
		go func() {
			defer close(over)
			g.ServeHTTP(w, req)
		}()
		first := <-w.set
		<-w.set
		cancel()
		<-over
		if first.IsZero() != lasts || !lasts && time.Until(first) < 30*time.Second {
			t.Errorf("%s: until %v", method, first)
		}
	}
}

// TestNothingIsTouchedBeyondACall: what answers a stream may go on when the call is over, and does not touch the response
// of the HTTP server any more, which would panic.
func TestNothingIsTouchedBeyondACall(t *testing.T) {
	w := &timed{httptest.NewRecorder(), make(chan time.Time, 100)}
	l := &lasting{call: http.NewResponseController(w)}
	l.until(time.Now())
	if n := len(w.set); n != 2 {
		t.Errorf("%d times were set", n)
	}
	l.end()
	l.until(time.Now())
	if n := len(w.set); n != 2 {
		t.Errorf("%d times were set, and the call is over", n)
	}
}

// TestCSDSIsOff: who asks is told which key to set.
func TestCSDSIsOff(t *testing.T) {
	at, _ := face(t, "tcp", "127.0.0.1:0", config.CSDSOff)
	_, err := discovery.NewClientStatusDiscoveryServiceClient(dial(t, at)).FetchClientStatus(t.Context(), &discovery.ClientStatusRequest{})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "set admin.csds to status") {
		t.Errorf("it says %v", err)
	}
}

// TestNoSecretInCSDS: bodies are shown, and no Secret among them.
func TestNoSecretInCSDS(t *testing.T) {
	at, _ := face(t, "tcp", "127.0.0.1:0", config.CSDSBodies)
	for _, req := range []*discovery.ClientStatusRequest{{}, everyNode()} {
		resp, err := discovery.NewClientStatusDiscoveryServiceClient(dial(t, at)).FetchClientStatus(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if text := resp.String(); strings.Contains(text, canary) || !strings.Contains(text, "[redacted]") {
			t.Errorf("it says %s", text)
		}
	}
	w := httptest.NewRecorder()
	newServices(newDescribed(), nil).csds.ServeHTTP(w, httptest.NewRequest("POST", csds.Path, strings.NewReader(`{"nodeMatchers": [{}]}`)))
	if bytes.Contains(w.Body.Bytes(), []byte(canary)) || w.Code != 200 {
		t.Errorf("it says %s", w.Body)
	}
}
