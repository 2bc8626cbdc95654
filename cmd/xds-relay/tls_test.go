package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	gcpserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// authority signs certificates for one test.
type authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
	file string // its own certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), pool: x509.NewCertPool()}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	a.file = a.write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// issue makes a certificate for 127.0.0.1, with a SPIFFE id.
func (a *authority) issue(t *testing.T, name string) (certFile, keyFile string, pair tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		URIs:        []*url.URL{{Scheme: "spiffe", Host: "test", Path: "/" + name}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile = a.write(t, name+".pem", "CERTIFICATE", der)
	keyFile = a.write(t, name+".key", "PRIVATE KEY", keyDER)
	if pair, err = tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile, pair
}

// serveClusters is a control plane with one cluster, that speaks TLS to clients
// with a certificate. It returns its address.
func serveClusters(t *testing.T, creds credentials.TransportCredentials) string {
	t.Helper()
	clusters := gcp.NewLinearCache(string(cache.Cluster))
	if err := clusters.UpdateResource("checkout", &cluster.Cluster{Name: "checkout"}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := grpc.NewServer(grpc.Creds(creds))
	discovery.RegisterAggregatedDiscoveryServiceServer(s, gcpserver.NewServer(ctx, clusters, nil))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // it ends with the test
	}()
	t.Cleanup(func() {
		cancel()
		s.Stop()
		<-done
	})
	return l.Addr().String()
}

// subscribe asks for all clusters and returns the first answer.
func subscribe(t *testing.T, address string, creds credentials.TransportCredentials) (*discovery.DeltaDiscoveryResponse, error) {
	t.Helper()
	_, resp, err := openStream(t, address, creds)
	return resp, err
}

// openStream is subscribe, and the stream on which the answer came.
func openStream(t *testing.T, address string, creds credentials.TransportCredentials) (discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, *discovery.DeltaDiscoveryResponse, error) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, nil, err
	}
	_ = stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "envoy-1"}, TypeUrl: string(cache.Cluster)}) // Recv has the reason
	resp, err := stream.Recv()
	return stream, resp, err
}

// TestTLSBothWays: the relay proves who it is to the control plane, and asks the
// same of its clients.
func TestTLSBothWays(t *testing.T) {
	a := newAuthority(t)
	_, _, controlPlane := a.issue(t, "control-plane")
	cert, key, _ := a.issue(t, "relay")
	_, _, client := a.issue(t, "client")

	upstream := serveClusters(t, credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{controlPlane}, ClientCAs: a.pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}))
	s := serveProgram(t, "--upstream", upstream, "--set", "downstream.drain=0s",
		"--set", "upstream.tls.ca="+a.file, "--set", "upstream.tls.cert="+cert, "--set", "upstream.tls.key="+key,
		"--set", "downstream.tls.cert="+cert, "--set", "downstream.tls.key="+key, "--set", "downstream.tls.client_ca="+a.file)

	resp, err := subscribe(t, s.address, credentials.NewTLS(&tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{client}}))
	if err != nil || len(resp.GetResources()) != 1 || resp.GetResources()[0].GetName() != "checkout" {
		t.Fatalf("got %v, %v; want the cluster", resp, err)
	}
	if code, body := s.get(t, "/clients"); code != http.StatusOK || !strings.Contains(body, `"identity": "spiffe://test/client"`) {
		t.Errorf("/clients: %d, want the client's identity in\n%s", code, body)
	}

	for name, creds := range map[string]credentials.TransportCredentials{
		"plaintext":      insecure.NewCredentials(),
		"no certificate": credentials.NewTLS(&tls.Config{RootCAs: a.pool}),
	} {
		if resp, err := subscribe(t, s.address, creds); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: got %v, %v; want UNAVAILABLE", name, resp, err)
		}
	}
	log := s.stop(t)
	for _, why := range []string{"it does not speak TLS", "it shows no certificate"} {
		if !strings.Contains(log, "a client could not connect: "+why) {
			t.Errorf("the log does not say that %s:\n%s", why, log)
		}
	}
	if strings.Contains(log, "ended before it spoke HTTP/2") {
		t.Errorf("the log says it twice:\n%s", log)
	}
}
