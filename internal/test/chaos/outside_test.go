//go:build linux

package chaos

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// prober looks at a relay from another network, as a kubelet and a Prometheus do.
type prober struct {
	t    testing.TB
	from *namespace
	http *http.Client
	grpc healthpb.HealthClient
}

// The relay's ports in the network that probers see.
const (
	xdsPort   = nearIP + ":18000"
	adminPort = nearIP + ":18001"
	probePort = nearIP + ":18002"
)

func newProber(t testing.TB, from *namespace) *prober {
	p := &prober{t: t, from: from}
	dial := func(_ context.Context, address string) (net.Conn, error) { return p.dial(address) }
	p.http = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) },
	}}
	conn, err := grpc.NewClient("passthrough:///"+xdsPort, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p.grpc = healthpb.NewHealthClient(conn)
	return p
}

// dial connects from the prober's network; a socket is of the network that it was made in.
func (p *prober) dial(address string) (c net.Conn, err error) {
	err = p.from.do(func() (err error) {
		c, err = (&net.Dialer{Timeout: 5 * time.Second}).Dial("tcp", address)
		return err
	})
	return c, err
}

// get is a kubelet's httpGet probe, or a scrape.
func (p *prober) get(path string) (code int, body string, err error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+probePort+path, nil)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1")
	resp, err := p.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// sees complains unless a path answers with a code and a text.
func (p *prober) sees(path string, code int, text string) error {
	got, body, err := p.get(path)
	if err != nil {
		return err
	}
	if got != code || !strings.Contains(body, text) {
		return fmt.Errorf("%s answers %d %.200q, want %d and %q", path, got, body, code, text)
	}
	return nil
}

// says complains unless gRPC health checks of both names are answered so.
func (p *prober) says(want healthpb.HealthCheckResponse_ServingStatus) error {
	for _, service := range []string{"", "envoy.service.discovery.v3.AggregatedDiscoveryService"} {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		got, err := p.grpc.Check(ctx, &healthpb.HealthCheckRequest{Service: service})
		cancel()
		if err != nil || got.GetStatus() != want {
			return fmt.Errorf("health of %q: %v, %v, want %v", service, got.GetStatus(), err, want)
		}
	}
	return nil
}

func (p *prober) must(errs ...error) {
	p.t.Helper()
	for _, err := range errs {
		if err != nil {
			p.t.Error(err)
		}
	}
}

// Probes and a scrape come from another network than the relay's, where nothing of its
// loopback is to be had: before it was ready, while it is, when its control plane is gone,
// and when it shuts down.
func TestSeenFromOutside(t *testing.T) {
	const serving, notServing = healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING
	near, c := newCable(t)
	r := newRelayIn(t, near, "127.0.0.1:15010", "downstream.ready_types=[CDS]", "downstream.insecure=true",
		"downstream.drain_delay=1h", "metrics.listen=0.0.0.0:18002")
	r.Args = append(r.Args, "--listen", xdsPort)
	p := newProber(t, c.far)
	r.Process = peer.StartBy(t, exec.Command(peer.Binary(t), r.Args...), near.do)
	eventually(t, func() error { return p.sees("/livez", http.StatusOK, "live") })

	p.must(
		p.sees("/readyz", http.StatusServiceUnavailable, "waiting for upstream to answer for CDS"),
		p.sees("/readyz?verbose", http.StatusServiceUnavailable, "[-]ready_types failed: waiting for upstream"),
		p.sees("/startupz", http.StatusServiceUnavailable, "waiting for upstream"),
		p.sees("/metrics", http.StatusOK, "\nxds_relay_ready 0"),
		p.says(notServing),
		p.sees("/clients", http.StatusNotFound, ""),
		p.sees("/", http.StatusNotFound, ""),
	)
	if conn, err := p.dial(adminPort); err == nil {
		conn.Close()
		t.Error("the admin endpoint can be reached")
	}

	up := startUpstreamIn(t, newHistory(usual()), near, "127.0.0.1:15010")
	eventually(t, func() error { return p.sees("/readyz", http.StatusOK, "ready") })
	p.must(
		p.sees("/startupz", http.StatusOK, "started"),
		p.sees("/stats/prometheus", http.StatusOK, "\nxds_relay_ready 1"),
		p.sees("/metrics", http.StatusOK, "# EOF"), // the form that Prometheus prefers
		p.says(serving),
	)
	_, err := p.grpc.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nonsense"})
	if status.Code(err) != codes.NotFound {
		t.Errorf("health of a service that there is not: %v", err)
	}

	up.Kill()
	eventually(t, func() error {
		m, err := r.Scrape()
		if n := m.Sum("xds_relay_upstream_streams"); err == nil && n > 0 {
			err = fmt.Errorf("%v streams upstream", n)
		}
		return err
	})
	p.must(p.sees("/readyz", http.StatusOK, "ready"), p.sees("/livez", http.StatusOK, "live"), p.says(serving))

	r.Signal(syscall.SIGTERM) // in its drain_delay it goes on, so that a TCP probe stays green
	eventually(t, func() error { return p.sees("/readyz", http.StatusServiceUnavailable, "shutting down") })
	p.must(
		p.sees("/livez", http.StatusOK, "live"),
		p.sees("/startupz", http.StatusOK, "started"),
		p.sees("/metrics", http.StatusOK, "\nxds_relay_ready 0"),
		p.says(notServing),
	)
	if conn, err := p.dial(xdsPort); err != nil {
		t.Errorf("a client that comes in the delay: %v", err)
	} else {
		conn.Close()
	}
}
