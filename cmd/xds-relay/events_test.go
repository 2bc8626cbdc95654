package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	gcpserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/adminclient"
	"github.com/xds-relay/xds-relay/internal/events"
)

// restarting is a control plane with a cluster and a secret, which can go away and come back.
type restarting struct {
	t        *testing.T
	address  string
	clusters *gcp.LinearCache
	secrets  *gcp.LinearCache
	stop     func()
}

func newRestarting(t *testing.T) *restarting {
	p := &restarting{t: t, address: "127.0.0.1:0", clusters: gcp.NewLinearCache(string(cache.Cluster)), secrets: gcp.NewLinearCache(string(cache.Secret))}
	p.set(1)
	secret := &tlsv3.Secret{Name: "key", Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{
		Secret: &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: canary + "-secret"}},
	}}}
	if err := p.secrets.UpdateResource("key", secret); err != nil {
		t.Fatal(err)
	}
	p.start()
	t.Cleanup(func() { p.stop() })
	return p
}

func (p *restarting) set(seconds int64) {
	p.t.Helper()
	if err := p.clusters.UpdateResource("checkout", &cluster.Cluster{Name: "checkout", ConnectTimeout: durationpb.New(time.Duration(seconds) * time.Second)}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *restarting) start() {
	p.t.Helper()
	l, err := net.Listen("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	mux := &gcp.MuxCache{
		Classify:      func(r *gcp.Request) string { return r.GetTypeUrl() },
		ClassifyDelta: func(r *gcp.DeltaRequest) string { return r.GetTypeUrl() },
		Caches:        map[string]gcp.Cache{string(cache.Cluster): p.clusters, string(cache.Secret): p.secrets},
	}
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, gcpserver.NewServer(ctx, mux, nil))
	var serves sync.WaitGroup
	serves.Go(func() { _ = server.Serve(l) }) // it ends with Stop
	p.stop = func() {
		cancel()
		server.Stop()
		serves.Wait()
	}
}

// told are the events that somebody was told, and all text of them.
type told struct {
	mu   sync.Mutex
	all  []events.Event
	text strings.Builder
}

func (o *told) take(text string, all ...events.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, all...)
	o.text.WriteString(text)
}

// find is the first event of a kind and of a type, if there is one.
func (o *told) find(kind events.Kind, t cache.TypeURL) (found events.Event, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.all {
		if e.Kind == kind && (t == "" || e.Type == t) {
			return e, true
		}
	}
	return found, false
}

// hook is where the relay's webhook leads to.
func hook(t *testing.T, o *told) string {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		var p events.Post
		if err := json.Unmarshal(body, &p); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if token := req.Header.Get("x-token"); token != canary+"-token" {
			t.Errorf("the token is %q", token)
		}
		o.take(string(body), p.Events...)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// follows runs a command of the program that goes on until end is called, and takes what it prints.
func follows(t *testing.T, take func(line string), args ...string) (end func()) {
	t.Helper()
	cmd := program(t, args...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var reads sync.WaitGroup
	reads.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			take(lines.Text())
		}
	})
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		reads.Wait()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	})
	t.Cleanup(end)
	return end
}

// probing has a client say something until somebody who watches is shown it.
func probing(t *testing.T, conn *grpc.ClientConn, watched *told) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	eventually(t, "somebody watches", func() bool {
		n++
		_ = stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "envoy-1"}, TypeUrl: string(cache.Cluster), ResourceNamesSubscribe: []string{fmt.Sprint("nothing-", n)}})
		watched.mu.Lock()
		defer watched.mu.Unlock()
		return watched.text.Len() > 0
	})
}

// sotwVersion is the version of the secret for a SotW client, which accepts it.
func sotwVersion(t *testing.T, conn *grpc.ClientConn) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	req := &discovery.DiscoveryRequest{Node: &core.Node{Id: "envoy-1"}, TypeUrl: string(cache.Secret), ResourceNames: []string{"key"}}
	_ = stream.Send(req) // Recv has the reason
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	req.VersionInfo, req.ResponseNonce = r.GetVersionInfo(), r.GetNonce()
	_ = stream.Send(req)
	return r.GetVersionInfo()
}

// TestEventsReachPeople: what happens is told at /events, by the command and at the webhook, and so is its end. None of them shows a
// secret, its version or a token.
func TestEventsReachPeople(t *testing.T) {
	plane := newRestarting(t)
	var posted, streamed, printed, watched told
	s := serveProgram(t, "--upstream", plane.address, "--set", "admin.stale_after=1s", "--set", "groups.secrets=shared", "--set", "groups.share_secrets=true",
		"--set", "admin.webhook.url="+hook(t, &posted), "--set", "admin.webhook.headers.x-token="+canary+"-token",
		"--set", "upstream.backoff={initial: 50ms, max: 100ms}", "--set", "downstream.drain=0s")
	admin := strings.TrimPrefix(s.admin, "http://")
	c, err := adminclient.New(admin)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var streams sync.WaitGroup
	defer c.Close()
	defer streams.Wait()
	defer cancel()
	streams.Go(func() {
		for e, err := range c.Stream(ctx, "/events", url.Values{"follow": {""}, "since": {"1"}}) {
			var event events.Event
			if err != nil || json.Unmarshal(e.Data, &event) != nil {
				break
			}
			streamed.take(string(e.Data), event)
		}
	})
	endEvents := follows(t, func(line string) {
		var e events.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		printed.take(line, e)
	}, "events", "--follow", "--since", "1", "-o", "json", "--address", admin)
	endWatch := follows(t, func(line string) { watched.take(line + "\n") }, "watch", "envoy-1", "--address", admin)
	await := func(kind events.Kind, typ cache.TypeURL) (e events.Event) {
		t.Helper()
		for name, o := range map[string]*told{"the webhook": &posted, "/events": &streamed, "xds-relay events": &printed} {
			eventually(t, name+" tells "+string(kind), func() (ok bool) { e, ok = o.find(kind, typ); return ok })
		}
		return e
	}
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	probing(t, conn, &watched)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(r *discovery.DeltaDiscoveryRequest) {
		t.Helper()
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	receive := func() *discovery.DeltaDiscoveryResponse {
		t.Helper()
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	answer := func(r *discovery.DeltaDiscoveryResponse, nack string) {
		t.Helper()
		a := &discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}
		if nack != "" {
			a.ErrorDetail = &statuspb.Status{Message: nack}
		}
		send(a)
	}
	send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "envoy-1"}, TypeUrl: string(cache.Cluster)})
	answer(receive(), "no such\ntransport socket")
	e := await(events.Nack, cache.Cluster)
	if e.Client == nil || e.Client.Node != "envoy-1" || e.Client.Stream == 0 || e.Group != "default" || e.Message != "no such\ntransport socket" || fmt.Sprint(e.Names, e.Count) != "[checkout] 1" || e.Level != events.Warn {
		t.Errorf("the NACK is told as %+v", e)
	}
	plane.set(2)
	r := receive()
	answer(r, "")
	await(events.NackOver, cache.Cluster)

	plane.set(3)
	r = receive() // and the client does nothing
	if e := await(events.Stale, cache.Cluster); e.Since.IsZero() || e.Count != 1 || e.Client.Node != "envoy-1" {
		t.Errorf("a client that does nothing is told as %+v", e)
	}
	answer(r, "")
	await(events.StaleOver, cache.Cluster)

	send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Secret), ResourceNamesSubscribe: []string{"key"}})
	r = receive()
	version := r.GetResources()[0].GetVersion()
	answer(r, "it is too short")
	await(events.Nack, cache.Secret)
	send(&discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Secret), ResourceNamesUnsubscribe: []string{"key"}})

	set := sotwVersion(t, conn)

	plane.stop()
	if e := await(events.ControlPlaneLost, ""); e.ControlPlane != plane.address {
		t.Errorf("%+v", e)
	}
	plane.start()
	eventually(t, "the control plane is back", func() bool {
		e, ok := streamed.find(events.ControlPlaneBack, "")
		return ok && e.ControlPlane == plane.address
	})
	_, reply := s.get(t, "/events?kind=nack,control_plane_back")
	_ = stream.CloseSend()
	for what, text := range map[string]*told{"the webhook": &posted, "/events": &streamed, "xds-relay events": &printed, "xds-relay watch": &watched, "the list": {all: nil}} {
		text.mu.Lock()
		shown := text.text.String()
		text.mu.Unlock()
		for _, hidden := range []string{canary, version, set} {
			if strings.Contains(shown+reply, hidden) {
				t.Errorf("%s shows %q: %s", what, hidden, shown)
			}
		}
	}
	eventually(t, "what the client and the relay said was watched", func() bool {
		watched.mu.Lock()
		defer watched.mu.Unlock()
		return strings.Contains(watched.text.String(), `rejected: no such\ntransport socket`) && strings.Contains(watched.text.String(), "rejected: it is too short") && strings.Contains(watched.text.String(), "version [redacted]")
	})
	cancel()
	streams.Wait()
	endEvents()
	endWatch()
	if log := s.stop(t); strings.Contains(log, canary) {
		t.Error("the log shows a secret")
	}
}

// TestEventsMistakes: each has its exit code, and says what to do.
func TestEventsMistakes(t *testing.T) {
	s := serveProgram(t, "--upstream", "127.0.0.1:1")
	at := []string{"--address", strings.TrimPrefix(s.admin, "http://")}
	for _, tt := range []struct {
		args []string
		code int
		err  string
	}{
		{append([]string{"events", "-o", "xml"}, at...), exitUsage, `-o is "xml"; use table or json`},
		{append([]string{"events", "--since", "today"}, at...), exitUsage, `--since is "today"; use the id of an event, or a time such as 10m`},
		{append([]string{"events", "--kind", "nak"}, at...), exitUsage, `kind is "nak"; use some of [nack nack_over`},
		{append([]string{"events", "--kind", "nak", "--follow"}, at...), exitUsage, `kind is "nak"; use some of [nack nack_over`},
		{append([]string{"watch", "a", "b"}, at...), exitUsage, "there are 2 arguments; name one client, or none for all"},
		{append([]string{"watch", "99"}, at...), exitFailure, "there is no stream 99; it may have ended, and /clients lists those that are open"},
		{append([]string{"watch", "--type", "ABC"}, at...), exitUsage, `type is "ABC"`},
		{[]string{"events", "--address", "127.0.0.1:1"}, exitFailure, "nobody answers at 127.0.0.1:1"},
		{[]string{"watch", "--address", "nowhere"}, exitUsage, "nowhere"},
	} {
		cmd := program(t, tt.args...)
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run() // the exit code tells
		if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(errs.String(), tt.err) || out.Len() > 0 {
			t.Errorf("%q: exit %d, %q, %q; want %d and %q", tt.args, code, out.String(), errs.String(), tt.code, tt.err)
		}
	}
	s.stop(t)
}

// TestEventsOnTerminal: nothing that a client says moves a cursor or ends a line.
func TestEventsOnTerminal(t *testing.T) {
	const harm = "a\x1b[2J\r\nb\u202e\x00"
	var out strings.Builder
	o := eventsOptions{output: "table"}
	if err := o.shower(&out)(events.Event{Kind: events.Nack, Type: cache.TypeURL("x/" + harm), Message: harm, Names: []string{harm}, Count: 3, Times: 2, Client: &events.Client{Node: harm, Stream: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := messageShower(&out, "table")(events.Message{Kind: events.Response, Type: harm, Node: harm, Nonce: harm, Version: harm, Names: []string{harm}, Nack: harm}); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.ContainsAny(text, "\x1b\r\x00\u202e") || strings.Count(text, "\n") != 4 || !strings.Contains(text, "and 2 more: a") || !strings.Contains(text, "(2 times since ") {
		t.Errorf("%q", text)
	}
}
