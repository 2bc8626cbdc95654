package envoygateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
)

// tap passes Delta ADS on, and keeps what was said. To who comes to it it is Envoy
// Gateway, to what is behind it an Envoy.
type tap struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	listen string
	behind *grpc.ClientConn

	mu      sync.Mutex
	streams int
	lines   []string // since it was last asked
	// sent are the resources that went by: how often each, by type and name.
	sent map[string]int
}

// startTap passes on to an address until the test ends.
func startTap(t testing.TB, g *gateway, to string) *tap {
	t.Helper()
	p := &tap{sent: make(map[string]int), behind: dial(t, g, to)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.listen = l.Addr().String()
	own, pool := certificates(t, g.Certificates("envoy-gateway"))
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	})))
	discovery.RegisterAggregatedDiscoveryServiceServer(s, p)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(l) // it ends with Stop
	}()
	t.Cleanup(func() {
		s.Stop()
		<-served
	})
	return p
}

// dial is a connection as an Envoy has one.
func dial(t testing.TB, g *gateway, to string) *grpc.ClientConn {
	t.Helper()
	own, pool := certificates(t, g.Certificates("envoy"))
	soon := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second}
	c, err := grpc.NewClient("passthrough:///"+to,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, RootCAs: pool, ServerName: "envoy-gateway",
		})),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func certificates(t testing.TB, dir string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatalf("%s has no authority", dir)
	}
	return own, pool
}

// DeltaAggregatedResources passes one stream on.
func (p *tap) DeltaAggregatedResources(client discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	ctx, cancel := context.WithCancel(client.Context())
	defer cancel()
	headers, _ := metadata.FromIncomingContext(ctx)
	out := metadata.MD{}
	for key, values := range headers {
		if strings.HasPrefix(key, "x-") {
			out[key] = values
		}
	}
	server, err := discovery.NewAggregatedDiscoveryServiceClient(p.behind).DeltaAggregatedResources(metadata.NewOutgoingContext(ctx, out))
	if err != nil {
		return err
	}
	n := p.opens()
	go func() {
		for {
			req, err := client.Recv()
			if err != nil {
				_ = server.CloseSend() // the other direction ends with it
				return
			}
			p.add(n, "> "+request(req))
			if server.Send(req) != nil {
				return
			}
		}
	}()
	for {
		resp, err := server.Recv()
		if err != nil {
			p.add(n, "< end: "+err.Error())
			return err
		}
		p.adds(n, resp)
		if err := client.Send(resp); err != nil {
			return err
		}
	}
}

func (p *tap) opens() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams++
	return p.streams
}

func (p *tap) adds(n int, r *discovery.DeltaDiscoveryResponse) {
	p.mu.Lock()
	for _, res := range r.GetResources() {
		p.sent[short(r.GetTypeUrl())+" "+res.GetName()]++
	}
	p.mu.Unlock()
	p.add(n, "< "+response(r))
}

func (p *tap) add(n int, line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, fmt.Sprintf("%s #%d %s", time.Now().Format("05.0000"), n, line))
}

// Lines are what was said since it was last asked.
func (p *tap) Lines() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := p.lines
	p.lines = nil
	return strings.Join(lines, "\n")
}

// Sent are the resources that have gone by since it was last asked.
func (p *tap) Sent() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := p.sent
	p.sent = make(map[string]int)
	return sent
}

// short is a type's name.
func short(url string) string {
	name := url[strings.LastIndexByte(url, '.')+1:]
	if s, ok := map[string]string{
		"Listener": "LDS", "RouteConfiguration": "RDS", "Cluster": "CDS", "ClusterLoadAssignment": "EDS", "Secret": "SDS",
	}[name]; ok {
		return s
	}
	return name
}

// request is a request in a line: node, names, nonce.
func request(r *discovery.DeltaDiscoveryRequest) string {
	line := short(r.GetTypeUrl())
	if n := r.GetNode(); n != nil {
		line += fmt.Sprintf(" node=%s@%s", n.GetId(), n.GetCluster())
	}
	for _, name := range r.GetResourceNamesSubscribe() {
		line += " +" + name
	}
	for _, name := range r.GetResourceNamesUnsubscribe() {
		line += " -" + name
	}
	if had := r.GetInitialResourceVersions(); len(had) > 0 {
		line += " had=" + strings.Join(slices.Sorted(maps.Keys(had)), ",")
	}
	switch {
	case r.GetErrorDetail() != nil:
		line += fmt.Sprintf(" nack=%s %q", r.GetResponseNonce(), r.GetErrorDetail().GetMessage())
	case r.GetResponseNonce() != "":
		line += " ack=" + r.GetResponseNonce()
	}
	return line
}

// response is a response in a line: what came, what went, nonce.
func response(r *discovery.DeltaDiscoveryResponse) string {
	line := short(r.GetTypeUrl()) + " nonce=" + r.GetNonce()
	for _, res := range r.GetResources() {
		line += " +" + res.GetName()
	}
	for _, name := range r.GetRemovedResources() {
		line += " -" + name
	}
	return line
}
