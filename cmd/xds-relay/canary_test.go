package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	gcpserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// canary is in every token of this test, and so must be in nothing that the relay shows.
const canary = "canary7f3a"

// guarded is a control plane that lets in who shows the tokens it wants, and shows those
// that it does not want in what it says of them.
type guarded struct {
	t      *testing.T
	addr   string
	refuse atomic.Bool
	server *grpc.Server
	cancel context.CancelFunc
	serves sync.WaitGroup

	mu   sync.Mutex
	seen map[string]int // streams, by the tokens that they showed
}

// wanted are the headers of a stream that the control plane looks at.
var wanted = []string{"authorization", "x-inline-token", "x-client-token", "x-withheld-token"}

func (g *guarded) start() {
	g.t.Helper()
	clusters := gcp.NewLinearCache(string(cache.Cluster))
	if err := clusters.UpdateResource("checkout", &cluster.Cluster{Name: "checkout"}); err != nil {
		g.t.Fatal(err)
	}
	l, err := net.Listen("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.addr, g.cancel = l.Addr().String(), cancel
	g.server = grpc.NewServer(grpc.StreamInterceptor(g.admit))
	discovery.RegisterAggregatedDiscoveryServiceServer(g.server, gcpserver.NewServer(ctx, clusters, nil))
	g.serves.Go(func() { _ = g.server.Serve(l) }) // it ends with stop
}

func (g *guarded) stop() {
	g.cancel()
	g.server.Stop()
	g.serves.Wait()
}

func (g *guarded) admit(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	var shown []string
	for _, name := range wanted {
		shown = append(shown, strings.Join(md.Get(name), ","))
	}
	tokens := strings.Join(shown, "|")
	g.mu.Lock()
	g.seen[tokens]++
	g.mu.Unlock()
	if g.refuse.Load() {
		return status.Error(codes.Unauthenticated, "these are not good: "+tokens)
	}
	return next(srv, stream)
}

func (g *guarded) streams(tokens string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen[tokens]
}

// eventually waits for what must become true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 3000 {
		if ok() {
			return
		}
		<-tick.C
	}
	t.Fatalf("not within 30 s: %s", what)
}

// TestCanary: no token that the relay has read, or that a client has sent, is in anything
// that it says, shows or writes, whatever happens meanwhile: its log with all of gRPC's,
// its admin endpoint, its snapshot, what clients are told, and what validate says
// (NODE-13).
func TestCanary(t *testing.T) {
	for _, keyed := range []bool{true, false} {
		t.Run(fmt.Sprintf("key=%v", keyed), func(t *testing.T) { testCanary(t, keyed) })
	}
}

func testCanary(t *testing.T, keyed bool) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token, state, key := write("token", canary+"-own\n"), filepath.Join(dir, "state"), ""
	if keyed {
		key = ", key_file: " + write("key", strings.Repeat("k", 32))
	}
	cp := &guarded{t: t, addr: "127.0.0.1:0", seen: make(map[string]int)}
	cp.start()
	defer func() { cp.stop() }()
	file := write("relay.yaml", fmt.Sprintf(`upstream:
  address: %q
  headers:
    authorization: {file: %q, prefix: "Bearer "}
    x-inline-token: %s-inline
  backoff: {initial: 50ms, max: 100ms}
downstream: {drain: 0s}
groups: {forward_headers: [x-client-token]}
timers: {unavailable_after: 300ms}
cache: {snapshot: {dir: %q, interval: 20ms%s}}
admin: {pprof: true}
log: {level: debug}
`, cp.addr, token, canary, state, key))

	var said []*lines
	shows := func(what, text string) {
		t.Helper()
		if i := strings.Index(text, canary); i >= 0 {
			t.Errorf("%s shows a token: …%s…", what, text[max(0, i-200):min(len(text), i+40)])
		}
	}
	look := func(s *served, groups int) {
		t.Helper()
		for _, path := range []string{"/", "/clients", "/groups", "/resources", "/events", "/metrics", "/server_info", "/readyz", "/debug/pprof/goroutine?debug=2"} {
			_, body := s.get(t, path)
			shows(path, body)
			if n := strings.Count(body, "hmac-sha256:"); path == "/groups" && n != groups {
				t.Errorf("%d groups by a client's header in\n%s", n, body)
			}
		}
		for _, request := range []string{"", `{"nodeMatchers": [{}]}`} {
			resp, err := http.Post(s.admin+"/v3/discovery:client_status", "application/json", strings.NewReader(request))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("CSDS: %v, %s: %s", err, resp.Status, body)
			}
			shows("CSDS", string(body))
		}
		channels, err := channelz.NewChannelzClient(connected(t, s.admin)).GetTopChannels(t.Context(), &channelz.GetTopChannelsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		shows("channelz", channels.String())
		_ = filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if data, err := os.ReadFile(path); err == nil {
					shows(path, string(data))
				}
			}
			return nil
		})
	}
	run := func(f func(s *served)) {
		t.Helper()
		s := serveProgram(t, "-c", file)
		log := new(lines)
		said = append(said, log)
		heard := log.follow(s.log)
		f(s)
		if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		<-heard
		_ = s.cmd.Wait() // what it left behind is looked at
		shows("the log", log.String())
	}
	// client opens a stream, asks for the cluster, and returns what it is told.
	client := func(s *served, tokens ...string) (*discovery.DeltaDiscoveryResponse, error) {
		t.Helper()
		conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		t.Cleanup(cancel)
		stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(metadata.AppendToOutgoingContext(ctx, tokens...))
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "envoy-1"}, TypeUrl: string(cache.Cluster), ResourceNamesSubscribe: []string{"checkout"}})
		resp, err := stream.Recv()
		shows("what a client is told", fmt.Sprint(resp, err))
		return resp, err
	}
	mine := []string{"x-client-token", canary + "-client", "x-withheld-token", canary + "-withheld"}
	has := func(resp *discovery.DeltaDiscoveryResponse, err error) bool {
		return err == nil && len(resp.GetResources()) == 1
	}

	run(func(s *served) {
		if resp, err := client(s, mine...); !has(resp, err) {
			t.Fatalf("the client got %v, %v", resp, err)
		}
		if all := "Bearer " + canary + "-own|" + canary + "-inline|" + canary + "-client|"; cp.streams(all) != 1 {
			t.Errorf("the control plane was shown %v", cp.seen)
		}
		if resp, err := client(s); !has(resp, err) {
			t.Fatalf("a client without a token got %v, %v", resp, err)
		}
		look(s, 1)

		// It refuses, in words that repeat the tokens.
		cp.refuse.Store(true)
		cp.stop()
		cp.start()
		eventually(t, "advice", func() bool { return strings.Contains(said[0].String(), "clients send the header x-withheld-token") })
		if _, err := client(s, "x-client-token", canary+"-other"); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "these are not good: Bearer [redacted]|[redacted]|[redacted]|") {
			t.Errorf("a client that is refused is told %v", err)
		}
		cp.stop()
		look(s, 2)
		if err := os.Remove(token); err != nil {
			t.Fatal(err)
		}
		if _, err := client(s, "x-client-token", canary+"-third"); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), token) {
			t.Errorf("without the file of a token a client is told %v", err)
		}
		if _, err := client(s, "x-client-token", canary+strings.Repeat("x", 8<<10)); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a client that sends too much is told %v", err)
		}
		look(s, 3)
	})
	if log := said[0].String(); !strings.Contains(log, "authorization: cannot read") || strings.Count(log, "clients send the header x-withheld-token, which is not forwarded") != 1 || !strings.Contains(log, `"component":"grpc"`) ||
		!strings.Contains(log, `"msg":"client request"`) || !strings.Contains(log, `"msg":"client response"`) || !strings.Contains(log, `"msg":"upstream request"`) || !strings.Contains(log, `"msg":"upstream response"`) {
		t.Errorf("the log of the first run lacks something:\n%s", log)
	}

	// A restart while the control plane is away, and the token's file too.
	run(func(s *served) {
		resp, err := client(s, mine...)
		if has(resp, err) != keyed {
			t.Errorf("after a restart the client got %v, %v", resp, err)
		}
		if resp, err := client(s, "x-client-token", canary+"-other"); has(resp, err) {
			t.Errorf("with another token there is %v", resp)
		}
		if resp, err := client(s); !has(resp, err) {
			t.Errorf("a client without a token got %v, %v", resp, err)
		}
		look(s, 2)
		cp.refuse.Store(false)
		cp.start()
		write("token", canary+"-new")
		eventually(t, "the new token is shown", func() bool {
			return cp.streams("Bearer "+canary+"-new|"+canary+"-inline|"+canary+"-client|") > 0
		})
		look(s, 2)
	})

	for _, args := range [][]string{{"validate", "-c", file}, {"validate", "-c", file, "--set", "groups.forward_headers=[authorization]"}, {"validate", "-c", file, "--set", "upstream.headers.X-A=" + canary}} {
		out, _ := program(t, args...).CombinedOutput() // how it exits is tested elsewhere
		shows(fmt.Sprint("validate, ", len(args), " arguments"), string(out))
	}
	write("relay.yaml", "upstream: {headers: {x-a: "+canary+"}, nonsense: x}\n")
	out, _ := program(t, "serve", "-c", file).CombinedOutput() // as above
	shows("serve", string(out))
	if !strings.Contains(string(out), `unknown field "nonsense"`) {
		t.Errorf("serve says %s", out)
	}
}
