//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	gcpserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/xds-relay/xds-relay/cache"
)

// TestOutOfDescriptors: with 256 descriptors and 300 clients a relay keeps those that it needs
// itself. It answers its probes, dials its control plane again, writes its snapshot, and sends the
// clients that are too many to another replica.
func TestOutOfDescriptors(t *testing.T) {
	const clients, room = 300, 256 - 32 - 64
	plane := startControlPlane(t)
	dir := filepath.Join(t.TempDir(), "state")
	small := serveLimited(t, 256, "--upstream", plane.address, "--set", "metrics.listen=127.0.0.1:0",
		"--set", "cache.snapshot.dir="+dir, "--set", "cache.snapshot.interval=1s", "--set", "upstream.backoff.max=1s", "--set", "downstream.drain=0s")
	other := serveProgram(t, "--upstream", plane.address, "--set", "upstream.backoff.max=1s", "--set", "downstream.drain=0s")

	fleet := make([]*replicated, clients)
	join := func(from, to int, relays ...string) {
		var joining sync.WaitGroup
		for i := from; i < to; i++ {
			joining.Go(func() { fleet[i] = newReplicated(t, fmt.Sprint("envoy-", i), relays...) })
		}
		joining.Wait()
	}
	join(0, room, small.address) // until it is full
	join(room, clients, small.address, other.address)
	if t.Failed() {
		t.Fatal(&small.all)
	}
	for _, c := range fleet {
		c.holds(t, "checkout-0")
	}
	if at := small.number(t, "xds_relay_client_connections"); at != room {
		t.Errorf("%v clients are connected to the relay with few descriptors, and %d should be", at, room)
	}
	// On a slow machine some clients give up an attempt before the relay has accepted it.
	if n := small.number(t, `xds_relay_client_connections_closed_total{reason="too_many"}`); n < (clients-room)/2 {
		t.Errorf("%v closed connections are counted", n)
	}

	// More come, and none of the others has a place for them.
	for range 300 {
		c, err := net.Dial("tcp", small.address)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Fatalf("a client that is too many is not sent away: %v", err)
		}
		c.Close()
		for _, probe := range []string{small.metrics + "/livez", small.metrics + "/readyz", small.admin + "/readyz"} {
			if code, body := get(t, probe); code != 200 {
				t.Fatalf("%s answers %d %s", probe, code, body)
			}
		}
	}

	// The control plane goes, and comes back with something new.
	for n := 1; n <= 2; n++ {
		plane.stop()
		small.await(t, "the loss of the control plane", func() bool { return small.number(t, "xds_relay_upstream_connected") == 0 })
		plane.start(t, fmt.Sprint("checkout-", n))
		for _, c := range fleet {
			c.holds(t, fmt.Sprint("checkout-", n))
		}
	}
	small.await(t, "a snapshot of it", func() bool {
		found := false
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				data, _ := os.ReadFile(path) // it may be gone: the next look tells
				found = found || strings.Contains(string(data), "checkout-2")
			}
			return nil
		})
		return found
	})
	if n := small.number(t, `xds_relay_snapshot_errors_total{operation="write"}`); n != 0 {
		t.Errorf("%v snapshots were not written", n)
	}

	// Clients that go make room.
	for _, c := range fleet {
		c.conn.Close()
	}
	small.await(t, "the end of its clients", func() bool { return small.number(t, "xds_relay_client_connections") == 0 })
	newReplicated(t, "late", small.address).holds(t, "checkout-2")

	log := small.stop(t)
	other.stop(t)
	if said := small.lines("downstream.listen"); len(said) != 1 {
		t.Errorf("the log has %d lines about it, and should have one: %+v", len(said), said)
	} else {
		documented(t, fmt.Sprintf("%s %s max_connections=%d", said[0].Level, said[0].Msg, said[0].MaxConnections))
	}
	if strings.Contains(log, "too many open files") {
		t.Errorf("descriptors ran out:\n%s", log)
	}
}

// TestSilentClients: a connection that never sends a byte is closed, over TCP and over a Unix socket.
// One that has begun to speak HTTP/2 may be silent then.
func TestSilentClients(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "") // t.TempDir's names are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	s := serveLimited(t, 0, "--listen", "unix://"+socket, "--upstream", "127.0.0.1:1", "--set", "downstream.drain=0s")
	var waiting sync.WaitGroup
	for network, address := range map[string]string{"tcp": s.address, "unix": socket} {
		dial := func() net.Conn {
			c, err := net.Dial(network, address)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(45 * time.Second))
			return c
		}
		speaks, silent := dial(), dial()
		defer speaks.Close()
		defer silent.Close()
		if _, err := io.WriteString(speaks, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
			t.Fatal(err)
		}
		waiting.Go(func() {
			if _, err := io.Copy(io.Discard, silent); os.IsTimeout(err) {
				t.Errorf("%s: a silent connection is still there", network)
			}
			if _, err := io.WriteString(speaks, "\x00\x00\x08\x06\x00\x00\x00\x00\x00whoareyo"); err != nil {
				t.Errorf("%s: %v", network, err)
			}
			if ok := awaitPong(speaks); !ok {
				t.Errorf("%s: a connection that speaks HTTP/2 is closed, too", network)
			}
		})
	}
	waiting.Wait()
	if n := s.number(t, `xds_relay_client_connections_closed_total{reason="handshake_timeout"}`); n != 2 {
		t.Errorf("%v connections are counted", n)
	}
	s.stop(t)
	if said := s.lines("a client could not connect"); len(said) != 2 || !strings.Contains(said[0].Msg, "has not spoken HTTP/2") {
		t.Errorf("the log has %+v", said)
	}
}

// awaitPong reads until the answer to a ping.
func awaitPong(c net.Conn) bool {
	r := bufio.NewReader(c)
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(r, head); err != nil {
			return false
		}
		data := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(r, data); err != nil {
			return false
		}
		if head[3] == 6 && string(data) == "whoareyo" {
			return true
		}
	}
}

// limited is a relay whose log is read all the time.
type limited struct {
	*served
	all  lines
	done <-chan struct{}
}

// serveLimited starts a relay that may have so many descriptors; 0: as many as this process.
func serveLimited(t *testing.T, descriptors int, args ...string) *limited {
	t.Helper()
	l := &limited{served: serveWith(t, func(s *served) {
		if descriptors > 0 {
			s.cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, descriptors), s.cmd.Path}, s.cmd.Args[1:]...)
			s.cmd.Path = "/bin/sh"
		}
	}, args...)}
	l.done = l.all.follow(l.log)
	return l
}

// stop ends it, and returns its log.
func (l *limited) stop(t *testing.T) string {
	t.Helper()
	if err := l.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-l.done
	if err := l.cmd.Wait(); err != nil {
		t.Errorf("it did not end well: %v", err)
	}
	return l.early + l.all.String()
}

// logged is a line of the log.
type logged struct {
	Level, Msg     string
	MaxConnections int `json:"max_connections"`
}

// lines are those of the log with a word.
func (l *limited) lines(word string) (found []logged) {
	for line := range strings.Lines(l.early + l.all.String()) {
		var message logged
		if err := json.Unmarshal([]byte(line), &message); err == nil && strings.Contains(message.Msg, word) {
			found = append(found, message)
		}
	}
	return found
}

// number is a metric.
func (l *limited) number(t *testing.T, name string) float64 {
	t.Helper()
	_, body := l.get(t, "/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

func (l *limited) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("no sign of %s\n%s", what, &l.all)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// controlPlane is one that ends and comes back at one address.
type controlPlane struct {
	address string
	stop    func()
}

func startControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	p := &controlPlane{address: "127.0.0.1:0"}
	p.start(t, "checkout-0")
	t.Cleanup(func() { p.stop() })
	return p
}

// start serves one cluster.
func (p *controlPlane) start(t *testing.T, name string) {
	t.Helper()
	l, err := net.Listen("tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	p.address = l.Addr().String()
	clusters := gcp.NewLinearCache(string(cache.Cluster))
	if err := clusters.UpdateResource(name, &cluster.Cluster{Name: name}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(s, gcpserver.NewServer(ctx, clusters, nil))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // it ends with stop
	}()
	p.stop = sync.OnceFunc(func() {
		cancel()
		s.Stop()
		<-done
	})
}

// replicated is a client with several relays to choose from, in their order, as Envoy and gRPC
// have them.
type replicated struct {
	conn   *grpc.ClientConn
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func newReplicated(t *testing.T, node string, relays ...string) *replicated {
	t.Helper()
	r := manual.NewBuilderWithScheme("relays")
	var state resolver.State
	for _, address := range relays {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
	}
	r.InitialState(state)
	conn, err := grpc.NewClient(r.Scheme()+":///", grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), programEnds)
	t.Cleanup(cancel)
	c := &replicated{conn: conn}
	if c.stream, err = discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx); err != nil {
		t.Errorf("%s: %v", node, err)
		return nil
	}
	_ = c.stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: node}, TypeUrl: string(cache.Cluster)}) // Recv has the reason
	return c
}

// holds reads until a cluster has come.
func (c *replicated) holds(t *testing.T, name string) {
	t.Helper()
	for {
		resp, err := c.stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()}) // the same
		for _, r := range resp.GetResources() {
			if r.GetName() == name {
				return
			}
		}
	}
}
