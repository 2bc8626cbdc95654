package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	gcpserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
)

// changing is a control plane of one cluster whose timeout tells its revision.
type changing struct {
	clusters *gcp.LinearCache
	address  string
	dialled  atomic.Int64 // connections it has accepted
}

func newChanging(t *testing.T) *changing {
	t.Helper()
	c := &changing{clusters: gcp.NewLinearCache(string(cache.Cluster))}
	c.set(t, 0)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(s, gcpserver.NewServer(ctx, c.clusters, nil))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(counting{l, &c.dialled}) // it ends with the test
	}()
	t.Cleanup(func() {
		cancel()
		s.Stop()
		<-done
	})
	c.address = l.Addr().String()
	return c
}

type counting struct {
	net.Listener
	n *atomic.Int64
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return conn, err
}

func (c *changing) set(t *testing.T, revision int64) {
	t.Helper()
	if err := c.clusters.UpdateResource("checkout", &cluster.Cluster{Name: "checkout", ConnectTimeout: durationpb.New(time.Duration(revision) * time.Second)}); err != nil {
		t.Fatal(err)
	}
}

// watcher is a client that accepts everything, on one stream for as long as it lasts.
type watcher struct {
	revision atomic.Int64
	ended    atomic.Pointer[error]
}

func (w *watcher) take(r *cluster.Cluster) { w.revision.Store(r.GetConnectTimeout().GetSeconds()) }

// watchAll starts so many clients, every second one over SotW, each on a connection of its
// own. stop ends them; after it the reasons for which streams ended tell nothing.
func watchAll(t *testing.T, address string, n int) (clients []*watcher, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	for i := range n {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		w := &watcher{}
		w.revision.Store(-1)
		clients = append(clients, w)
		node := &core.Node{Id: fmt.Sprint("client-", i)}
		ads := discovery.NewAggregatedDiscoveryServiceClient(conn)
		work.Go(func() {
			defer conn.Close()
			err := w.delta(ctx, ads, node)
			if i%2 == 1 {
				err = w.sotw(ctx, ads, node)
			}
			w.ended.Store(&err)
		})
	}
	return clients, func() { cancel(); work.Wait() }
}

func (w *watcher) delta(ctx context.Context, ads discovery.AggregatedDiscoveryServiceClient, node *core.Node) error {
	stream, err := ads.DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	_ = stream.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: string(cache.Cluster)}) // Recv has the reason
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, r := range resp.GetResources() {
			w.read(r.GetResource().GetValue())
		}
		_ = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()})
	}
}

func (w *watcher) sotw(ctx context.Context, ads discovery.AggregatedDiscoveryServiceClient, node *core.Node) error {
	stream, err := ads.StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	_ = stream.Send(&discovery.DiscoveryRequest{Node: node, TypeUrl: string(cache.Cluster)}) // Recv has the reason
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, r := range resp.GetResources() {
			w.read(r.GetValue())
		}
		_ = stream.Send(&discovery.DiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce(), VersionInfo: resp.GetVersionInfo()})
	}
}

func (w *watcher) read(body []byte) {
	var c cluster.Cluster
	if proto.Unmarshal(body, &c) == nil {
		w.take(&c)
	}
}

// await waits until all clients have a revision, and none has lost its stream.
func await(t *testing.T, clients []*watcher, revision int64, what string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	missing := 0
	for range 3000 {
		missing = 0
		for i, w := range clients {
			if err := w.ended.Load(); err != nil {
				t.Fatalf("%s: the stream of client %d has ended: %v", what, i, *err)
			}
			if w.revision.Load() < revision {
				missing++
			}
		}
		if missing == 0 {
			return
		}
		<-tick.C
	}
	t.Fatalf("%s: %d of %d clients have not seen revision %d", what, missing, len(clients), revision)
}

// reloaded is a relay whose configuration is a file.
type reloaded struct {
	*served
	t    *testing.T
	path string
	log  lines
	said <-chan struct{} // closed when it says no more
}

// serveFile starts a relay, and writes down what it says.
func serveFile(t *testing.T, config string, args ...string) *reloaded {
	t.Helper()
	path := filepath.Join(t.TempDir(), "relay.yaml")
	r := &reloaded{t: t, path: path}
	r.write(config)
	r.served = serveProgram(t, append([]string{"-c", path, "--set", "downstream.drain=0s"}, args...)...)
	r.said = r.log.follow(r.served.log)
	return r
}

func (r *reloaded) write(config string) {
	r.t.Helper()
	if err := os.WriteFile(r.path+".new", []byte(config), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.path+".new", r.path); err != nil {
		r.t.Fatal(err)
	}
}

// reload writes a configuration and asks for it.
func (r *reloaded) reload(config string) (code int, body string) {
	r.t.Helper()
	r.write(config)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(r.admin+"/-/reload", "", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// metric is the sum of a metric's series.
func (r *reloaded) metric(name string) (sum float64) {
	r.t.Helper()
	_, text := r.get(r.t, "/metrics")
	for line := range strings.Lines(text) {
		if series, value, _ := strings.Cut(strings.TrimSpace(line), " "); series == name || strings.HasPrefix(series, name+"{") {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				r.t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// end stops the relay, which must end well.
func (r *reloaded) end() {
	r.t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	<-r.said
	if err := r.cmd.Wait(); err != nil {
		r.t.Errorf("it did not end well: %v", err)
	}
}

// good are configurations that change about everything that can be changed.
var good = []string{
	"upstream: {address: '%[1]s'}\n",
	"upstream: {address: '%[2]s'}\n",
	"upstream: {address: '%[1]s', fallbacks: [{address: '%[2]s'}]}\n",
	"upstream: {address: '%[2]s', fallbacks: [{address: '%[1]s', mode: sotw}], headers: {x-a: b}}\n",
	"upstream: {address: '%[1]s', mode: sotw, keepalive: 10s, max_receive_bytes: 1MiB}\ntimers: {dne_timeout: 2s, ack_timeout: 1s}\n",
	"upstream: {address: '%[1]s', wildcard_form: explicit, max_request_bytes: 1MiB, types: [CDS, EDS]}\nlog: {level: debug}\n",
	"upstream: {address: '%[1]s', backoff: {initial: 2s, max: 3s}, coalesce_window: 1ms, health_check: off}\ndownstream: {request_rate: 9, request_burst: 7, stall_timeout: 3s, max_response_bytes: 4MiB}\n",
	"upstream: {address: '%[2]s'}\ncache: {max_lingering_names: 3, max_unasked_bytes: 1MiB, mass_removal_guard: {fraction: 0.5}}\ntimers: {name_linger: 1s, group_linger: 1s, warming_hold: 0s, unavailable_after: 1s}\n",
	"upstream: {address: '%[1]s', fallbacks: [{address: '127.0.0.1:1'}]}\ndownstream: {request_rate: 0, stall_timeout: 0s, max_name_bytes: 1KiB, max_names_per_stream: 99}\nlog: {format: text}\n",
	"upstream: {address: '%[2]s'}\ngroups: {max: 5}\ndownstream: {max_request_bytes: 1MiB, ready_types: [CDS]}\n", // of which most needs a restart
}

// broken are configurations with a mistake, and what is said of it.
var broken = []struct{ text, says string }{
	{"upstream: {address: '%[1]s'\n", "relay.yaml:1:"},
	{"upstream: {addr: '%[1]s'}\n", `relay.yaml:1:12: unknown field "addr"`},
	{"upstream: {address: '%[1]s', tls: {ca: /no/such/file}}\n", `relay.yaml:1:`},
	{"upstream: {address: '192.0.2.1:1'}\n", "relay.yaml:1:21: upstream.address"},
	{"upstream: {address: '%[2]s', headers: {x-a: {file: /no/such/token}}}\n", "upstream.headers.x-a.file"},
	{"timers: {ack_timeout: 0s}\nlog: {level: loud}\n", "relay.yaml:2:14: log.level"},
}

// TestReloadUnderLoad: whatever is reloaded, and however broken, no client's stream ends,
// all see every change, and what is in force is the last configuration that was good.
// XDS_RELAY_RELOADS makes it longer, as for 1,000 reloads.
func TestReloadUnderLoad(t *testing.T) {
	t.Run("one group", func(t *testing.T) { reloadUnderLoad(t) })
	t.Run("a group for each client", func(t *testing.T) { reloadUnderLoad(t, "--set", "groups.key=[id]") })
}

func reloadUnderLoad(t *testing.T, args ...string) {
	reloads, clients := 3*len(good), 8
	if n, err := strconv.Atoi(os.Getenv("XDS_RELAY_RELOADS")); err == nil {
		reloads, clients = n, 100
		defer func(was time.Duration) { programEnds = was }(programEnds)
		programEnds = time.Hour
	}
	a, b := newChanging(t), newChanging(t)
	text := func(form string) string {
		if !strings.Contains(form, "%[") {
			return form
		}
		return strings.NewReplacer("%[1]s", a.address, "%[2]s", b.address).Replace(form)
	}
	r := serveFile(t, text(good[0]), args...)
	watchers, stop := watchAll(t, r.address, clients)
	defer stop()
	await(t, watchers, 0, "at the beginning")
	goroutines := r.metric("go_goroutines")

	refused := 0
	for i := range reloads {
		revision := int64(i + 1)
		if i%2 == 1 {
			bad := broken[i/2%len(broken)]
			if code, body := r.reload(text(bad.text)); code != http.StatusBadRequest || !strings.Contains(body, bad.says) {
				t.Fatalf("reload %d of %q: %d %q", i, bad.text, code, body)
			}
			if _, m := r.get(t, "/metrics"); !strings.Contains(m, "\nxds_relay_config_last_reload_successful 0\n") {
				t.Fatalf("reload %d: the metric does not say that it was refused", i)
			}
			refused++
		} else if code, body := r.reload(text(good[i/2%len(good)])); code != http.StatusOK {
			t.Fatalf("reload %d of %q: %d %q", i, good[i/2%len(good)], code, body)
		}
		a.set(t, revision)
		b.set(t, revision)
		if i%10 == 9 {
			await(t, watchers, revision, fmt.Sprintf("after reload %d", i))
		}
	}
	last := text(good[1])
	if code, body := r.reload(last); code != http.StatusOK {
		t.Fatalf("the last reload: %d %q", code, body)
	}
	if code, body := r.reload(text(broken[0].text)); code != http.StatusBadRequest {
		t.Fatalf("a broken one after it: %d %q", code, body)
	}
	// Who asks over HTTP need not be one who may read the file.
	if code, body := r.reload(last + "headerz: {authorization: Bearer hunter2}\n"); code != http.StatusBadRequest || !strings.Contains(body, `unknown field "headerz"`) || strings.Contains(body, "hunter2") {
		t.Errorf("a section that is misspelt: %d %q", code, body)
	}
	refused++
	b.set(t, 1_000_000) // a stays behind: it is not in the configuration any more
	await(t, watchers, 1_000_000, "at the end")
	if code, body := r.reload(last); code != http.StatusOK || body != "nothing has changed\n" {
		t.Errorf("what is in force is not the last good configuration: %d %q", code, body)
	}
	if _, m := r.get(t, "/metrics"); !strings.Contains(m, "\nxds_relay_config_last_reload_successful 1\n") {
		t.Error("the metric does not say that the last reload went well")
	}
	_, m := r.get(t, "/metrics")
	for line := range strings.Lines(m) {
		if strings.HasPrefix(line, "xds_relay_client_disconnects_total{") && !strings.HasSuffix(line, " 0\n") {
			t.Errorf("clients were disconnected: %s", line)
		}
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	connections := func() float64 { return r.metric("xds_relay_upstream_connections") }
	needed := float64(1 + clients/100) // 99 streams share one
	for n := 0; connections() > needed && n < 1000; n++ {
		<-tick.C
	}
	if n := connections(); n < 1 || n > needed {
		t.Errorf("there are %v connections to control planes, want no more than are needed, %v", n, needed)
	}
	if n := r.metric("go_goroutines"); n > goroutines+30 {
		t.Errorf("%v goroutines, and %v at the beginning", n, goroutines)
	}
	stop()
	r.end()
	if n, want := strings.Count(r.log.String(), "the configuration was not reloaded"), min(refused+1, 10); n < want { // of equal lines a few are written
		t.Errorf("the log tells of %d configurations that were refused, want at least %d", n, want)
	}
	t.Logf("%d reloads, %d of them refused, %d clients", reloads+4, refused+1, clients)
}

// TestHangUp: SIGHUP does not end the process, and has the configuration read; flags still
// go before the file, and what needs a restart is named.
func TestHangUp(t *testing.T) {
	a := newChanging(t)
	r := serveFile(t, "upstream: {address: '"+a.address+"'}\n")
	watchers, stop := watchAll(t, r.address, 2)
	defer stop()
	await(t, watchers, 0, "at the beginning")
	r.write("upstream: {address: '" + a.address + "'}\ndownstream: {drain: 7s, drain_delay: 9s}\ngroups: {max: 9}\ntimers: {ack_timeout: 3s}\n")
	if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if strings.Contains(r.log.String(), "configuration reloaded") {
			break
		}
		<-tick.C
	}
	a.set(t, 1)
	await(t, watchers, 1, "after SIGHUP")
	stop()
	r.end()
	log := r.log.String()
	for _, want := range []string{
		`"msg":"configuration changed","trigger":"SIGHUP","key":"timers.ack_timeout","old":"10s","new":"3s"`,
		`"msg":"a changed key needs a restart; the old value stays in force","trigger":"SIGHUP","key":"groups.max","old":"1000","new":"9"`,
		`"msg":"configuration reloaded","trigger":"SIGHUP","changed":1,"need_restart":1`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	if n := a.dialled.Load(); n != 1 {
		t.Errorf("the control plane was connected to %d times, want once: nothing changed there", n)
	}
}

// TestReloadList: a control plane of which nothing has changed keeps its connection, one
// that is new is used when it is the only one, and its resources reach the clients that are
// there.
func TestReloadList(t *testing.T) {
	a, b := newChanging(t), newChanging(t)
	r := serveFile(t, "upstream: {address: '"+a.address+"'}\n")
	watchers, stop := watchAll(t, r.address, 4)
	defer stop()
	await(t, watchers, 0, "at the beginning")
	for _, text := range []string{
		"upstream: {address: '" + a.address + "', fallbacks: [{address: '" + b.address + "'}]}\n",
		"upstream: {address: '" + a.address + "', fallbacks: [{address: '127.0.0.1:1'}, {address: '" + b.address + "', mode: sotw}], backoff: {max: 20s}, failover_after: 9s}\n",
		"upstream: {address: '" + a.address + "', insecure: true}\ntimers: {ack_timeout: 1s, name_linger: 1s}\n",
	} {
		if code, body := r.reload(text); code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
	}
	a.set(t, 1)
	await(t, watchers, 1, "after changes of the rest of the list")
	if n := a.dialled.Load(); n != 1 {
		t.Errorf("the control plane in use was connected to %d times, want once", n)
	}
	b.set(t, 2)
	if code, body := r.reload("upstream: {address: '" + b.address + "'}\n"); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	await(t, watchers, 2, "after a change of the only one")
	if code, body := r.reload("upstream: {address: '" + b.address + "', keepalive: 30s}\n"); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	b.set(t, 3)
	await(t, watchers, 3, "after a change of how it is reached")
	// The change may have come over the connection from before: that of now is opened in the background.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := 0; b.dialled.Load() < 2 && i < 3000; i++ {
		<-tick.C
	}
	if n := b.dialled.Load(); n != 2 {
		t.Errorf("the other one was connected to %d times, want twice: keepalive has changed", n)
	}
	stop()
	r.end()
}

// TestReloadTLS: clients that come later must speak TLS; those that are there stay.
func TestReloadTLS(t *testing.T) {
	a := newAuthority(t)
	cert, key, _ := a.issue(t, "relay")
	plane := newChanging(t)
	plain := "upstream: {address: '" + plane.address + "'}\n"
	r := serveFile(t, plain)
	watchers, stop := watchAll(t, r.address, 2)
	defer stop()
	await(t, watchers, 0, "at the beginning")
	secured := plain + "downstream: {tls: {cert: '" + cert + "', key: '" + key + "'}}\n"
	for i, text := range []string{secured, plain, secured} {
		if code, body := r.reload(text); code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
		if resp, err := subscribe(t, r.address, credentials.NewTLS(&tls.Config{RootCAs: a.pool})); (err == nil) != (text == secured) {
			t.Errorf("reload %d: over TLS a client gets %v, %v", i, resp, err)
		}
		if resp, err := subscribe(t, r.address, insecure.NewCredentials()); (err == nil) != (text == plain) {
			t.Errorf("reload %d: in plaintext a client gets %v, %v", i, resp, err)
		}
	}
	plane.set(t, 1)
	await(t, watchers, 1, "after TLS was set")
	stop()
	r.end()
}
