package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/logging"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
)

// ledger is where a log goes.
type ledger struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements io.Writer.
func (d *ledger) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all.Write(b)
}

func (d *ledger) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all.Len()
}

// accounted is how many lines with a part were written, and how many there would have been.
func (d *ledger) accounted(t *testing.T, part string) (lines, all int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for line := range bytes.Lines(d.all.Bytes()) {
		var l struct {
			Msg        string
			Suppressed int
		}
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("not JSON: %s", line)
		}
		if strings.Contains(l.Msg, part) {
			lines++
			all += 1 + l.Suppressed
		}
	}
	return lines, all
}

// stormy is a relay with the log that the program has.
func stormy(t *testing.T, upstream string, sets ...string) (address string, log *logging.Log, d *ledger) {
	t.Helper()
	d = new(ledger)
	log = logging.New(logging.Options{Out: d, Level: slog.LevelInfo})
	c, err := config.Load("", append([]string{"upstream.address=" + upstream, "groups.key=[id]"}, sets...))
	if err != nil {
		t.Fatal(err)
	}
	r, err := relay.New(c, relay.Options{Log: log.Logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(0); log.Close() })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.Serve(l)
	return l.Addr().String(), log, d
}

// fleetOf opens the streams of n clients over a tenth as many connections, each of a node of
// its own, and has them ask for all clusters.
func fleetOf(t *testing.T, address string, n int) (streams []discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) {
	t.Helper()
	var conn *grpc.ClientConn
	for i := range n {
		if i%10 == 0 {
			c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			conn = c
		}
		s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: fmt.Sprint("envoy-", i)}, TypeUrl: string(cache.Cluster), ResourceNamesSubscribe: []string{"*"}})
		streams = append(streams, s)
	}
	return streams
}

// budget is what a log may take: 1 KB a second, and the first lines of each kind at once.
func budget(begin time.Time) int { return 16<<10 + int(time.Since(begin)/time.Second+1)<<10 }

// TestStormOfRefusals: a thousand clients that are refused and come back at once do not fill
// the log, and each is accounted for.
func TestStormOfRefusals(t *testing.T) {
	const clients, rounds = 1000, 3
	address, log, d := stormy(t, loopback.Reserve(t), "groups.max=1")
	fleetOf(t, address, 1) // it has the one group there may be
	eventually(t, patience, func() error {
		lines, _ := d.accounted(t, "group opened")
		return is("groups", lines, 1)
	})
	begin := time.Now()
	for range rounds {
		for _, s := range fleetOf(t, address, clients)[1:] {
			if _, err := s.Recv(); status.Code(err) != codes.ResourceExhausted {
				t.Fatalf("a client beyond groups.max is told %v", err)
			}
		}
	}
	t.Logf("%d refusals in %v: %d bytes of log", rounds*(clients-1), time.Since(begin).Round(time.Millisecond), d.Len())
	if n := d.Len(); n > budget(begin) {
		t.Errorf("%d bytes of log", n)
	}
	eventually(t, patience, func() error {
		log.Close()
		_, all := d.accounted(t, "client refused")
		return is("refusals", all, rounds*(clients-1))
	})
}

// TestStormOfGroups: a thousand groups without a control plane are a few lines, whether it
// was never there or is lost, and so is its return.
func TestStormOfGroups(t *testing.T) {
	const groups = 1000
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	cp := newControlPlane(t, w.Mux())
	address, _, d := stormy(t, cp.addr, "upstream.backoff.initial=100ms", "upstream.backoff.max=500ms", "timers.unavailable_after=1s")
	begin := time.Now()
	streams := fleetOf(t, address, groups)
	wait(5 * time.Second)
	t.Logf("%d groups and no control plane for %v: %d bytes of log", groups, time.Since(begin).Round(time.Millisecond), d.Len())
	count := func(part string, least, most int) {
		t.Helper()
		if lines, all := d.accounted(t, part); all < least || all > most {
			t.Errorf("%d lines, of %d, with %q, want %d to %d", lines, all, part, least, most)
		}
	}
	count("cannot reach the control plane", 1, 3)
	if n := d.Len(); n > budget(begin) {
		t.Errorf("%d bytes of log", n)
	}
	cp.Start()
	answered := func() {
		t.Helper()
		eventually(t, patience, func() error {
			lines, _ := d.accounted(t, "the control plane answers")
			return is("lines of its return", min(lines, 1), 1)
		})
	}
	answered()
	if _, err := streams[0].Recv(); err != nil && status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	wait(2 * time.Second)
	cp.Stop()
	wait(3 * time.Second)
	count("the control plane answers", 1, 2)
	count("lost the control plane", 1, 1)
	count("cannot reach the control plane", 1, 6)
	if n := d.Len(); n > budget(begin) {
		t.Errorf("%d bytes of log", n)
	}
	if t.Failed() {
		t.Logf("%s", d.all.String())
	}
	t.Logf("in all %v: %d bytes of log", time.Since(begin).Round(time.Millisecond), d.Len())
}

// TestStormOfEnvoys: clients that are sent away in an outage, and come back, do not fill the
// log either.
func TestStormOfEnvoys(t *testing.T) {
	const clients, rounds = 300, 3
	address, log, d := stormy(t, loopback.Reserve(t), "groups.key=[cluster]", "timers.unavailable_after=100ms", "upstream.backoff.initial=100ms", "upstream.backoff.max=500ms")
	begin := time.Now()
	for range rounds {
		for _, s := range fleetOf(t, address, clients) {
			if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
				t.Fatalf("a client that waits in an outage is told %v", err)
			}
		}
	}
	t.Logf("%d clients were sent away %d times in %v: %d bytes of log", clients, rounds, time.Since(begin).Round(time.Millisecond), d.Len())
	if n := d.Len(); n > budget(begin) {
		t.Errorf("%d bytes of log", n)
	}
	eventually(t, patience, func() error {
		log.Close()
		_, all := d.accounted(t, "client stream ended")
		return is("ends", all, rounds*clients)
	})
}
