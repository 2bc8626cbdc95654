package downstream

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// page is a log that several goroutines write.
type page struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements io.Writer.
func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all.Write(b)
}

// line returns the first line that has all parts.
func (p *page) line(parts ...string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.all.String()) {
		if has := func(part string) bool { return strings.Contains(line, part) }; all(parts, has) {
			return line
		}
	}
	return ""
}

// text returns all of it.
func (p *page) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all.String()
}

func all(parts []string, ok func(string) bool) bool {
	for _, part := range parts {
		if !ok(part) {
			return false
		}
	}
	return true
}

// TestWhatTheLogSays plays a client that rejects, one that is refused, and one that leaves,
// and looks at the log at two levels: no body and no version of a secret is in it.
func TestWhatTheLogSays(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelInfo, slog.LevelDebug} {
		t.Run(level.String(), func(t *testing.T) { whatTheLogSays(t, level) })
	}
}

func whatTheLogSays(t *testing.T, level slog.Level) {
	const body = "-----BEGIN PRIVATE KEY-----"
	log := new(page)
	hub := fanout.NewHub(fanout.Config{Linger: time.Minute, Name: "east"})
	s := NewServer(ServerConfig{
		Config:      session.Config{AckTimeout: time.Minute, MaxName: 100, MaxNames: 100},
		Credentials: insecure.NewCredentials(), Groups: oneGroup{hub}, MaxRequest: 1 << 20, MaxStreams: 10, FirstMessage: time.Minute,
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level})),
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
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	say := func(r *discovery.DiscoveryRequest) {
		t.Helper()
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	hear := func() *discovery.DiscoveryResponse {
		t.Helper()
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	set := func(typ cache.TypeURL, n int) {
		u := &cache.Update{}
		for i := range n {
			name := fmt.Sprintf("name-%02d", i)
			u.Set = append(u.Set, cache.Received{Upstream: "v7", Resource: cache.NewResource(typ, &discovery.Resource{
				Name: name, Resource: &anypb.Any{TypeUrl: string(typ), Value: []byte(body)},
			}, cache.Fingerprint{})})
		}
		hub.Apply(fanout.Lane{Type: typ}, u)
	}
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("name-%02d", i))
	}
	node := &core.Node{Id: "envoy-1"}
	say(&discovery.DiscoveryRequest{Node: node, TypeUrl: string(cache.Secret), ResourceNames: names})
	await(t, func() bool { return len(hub.On(fanout.Lane{Type: cache.Secret}).Names()) == len(names) })
	set(cache.Secret, len(names))
	r := hear()
	say(&discovery.DiscoveryRequest{TypeUrl: string(cache.Secret), ResourceNames: names, ResponseNonce: r.GetNonce(), VersionInfo: r.GetVersionInfo(), ErrorDetail: &statuspb.Status{Message: "no such curve"}})
	await(t, func() bool { return log.line("client rejected a response") != "" })
	c := s.Clients()[0].Types[0]
	if c.Sync != "nacked" || c.Nack != "no such curve" || c.Nacked != 12 || len(c.NackedNames) != 10 || c.NackedNames[0] != "name-00" {
		t.Errorf("the client is described as %+v", c)
	}
	say(&discovery.DiscoveryRequest{TypeUrl: string(cache.Cluster), ResourceNames: []string{strings.Repeat("x", 1000)}})
	if _, err := stream.Recv(); err == nil {
		t.Fatal("a name of 1,000 bytes is accepted")
	}
	await(t, func() bool { return log.line("client refused") != "" })

	for _, want := range [][]string{
		{"level=INFO", `msg="client stream open"`, "type=" + string(cache.Secret), "group=east", "node_id=envoy-1", "peer=127.0.0.1:", "identity=", "protocol=sotw"},
		{"level=WARN", `msg="client rejected a response"`, `nack="no such curve"`, "resources=12", `first="[name-00 name-01`, "name-09]"},
		{"level=WARN", `msg="client refused"`, "reason=over_limit", "downstream.max_name_bytes", "node_id=envoy-1", "peer=127.0.0.1:", "protocol=sotw", "group=east",
			"types=SDS", "requests=3", "nacks=1", "responses=1", "bytes=", "type=" + string(cache.Cluster)},
	} {
		if log.line(want...) == "" {
			t.Errorf("there is no line with %q", want)
		}
	}
	for _, debug := range [][]string{
		{"level=DEBUG", `msg="client request"`, "kind=initial", "names=12", `first="[name-00`, `version="" nonce=""`},
		{"level=DEBUG", `msg="client response"`, "nonce=SDS.", "version=[redacted]", "resources=12", "bytes="},
		{"level=DEBUG", `msg="client request"`, "kind=nack", "version=[redacted]", `nack="no such curve"`},
	} {
		if there := log.line(debug...) != ""; there != (level == slog.LevelDebug) {
			t.Errorf("at level %v, a line with %q: %v", level, debug, there)
		}
	}
	for _, secret := range []string{body, r.GetVersionInfo()} {
		if line := log.line(secret); line != "" {
			t.Errorf("the log says %q: %s", secret, line)
		}
	}
}

// await waits for something that another goroutine does.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 10_000 {
		if ok() {
			return
		}
		<-tick.C
	}
	t.Fatal("it does not happen")
}

// Log lines for debugging cost nothing when debugging is off.
func TestSilenceIsFree(t *testing.T) {
	log := slog.New(slog.NewJSONHandler(new(page), &slog.HandlerOptions{Level: slog.LevelInfo})).With("component", "downstream")
	s := &Server{log: log}
	if n := testing.AllocsPerRun(100, func() {
		if s.debugs() {
			t.Error("nobody has asked for it")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
