package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// authority is a certificate authority of one test, with its files.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{t: t, dir: t.TempDir(), pool: x509.NewCertPool()}
	a.cert, a.key = a.sign("ca", &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	a.pool.AddCert(a.cert)
	return a
}

// sign makes a certificate and writes it and its key to files.
func (a *authority) sign(file string, c *x509.Certificate, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	must := func(err error) {
		if err != nil {
			a.t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	if parent == nil {
		parent, parentKey = c, key
	}
	c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	must(err)
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-time.Hour)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), parentKey)
	must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	write := func(suffix, kind string, bytes []byte) {
		must(os.WriteFile(a.path(file+suffix), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600))
	}
	write(".pem", "CERTIFICATE", der)
	write(".key", "PRIVATE KEY", keyDER)
	cert, err := x509.ParseCertificate(der)
	must(err)
	return cert, key
}

func (a *authority) path(file string) string { return filepath.Join(a.dir, file) }

// issue makes a certificate for 127.0.0.1 and for an identity, if it is given one.
func (a *authority) issue(name, identity string) tls.Certificate {
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if identity != "" {
		u, err := url.Parse(identity)
		if err != nil {
			a.t.Fatal(err)
		}
		c.URIs = []*url.URL{u}
	}
	return a.pair(name, c)
}

// pair makes a certificate as it is described.
func (a *authority) pair(name string, c *x509.Certificate) tls.Certificate {
	a.t.Helper()
	a.sign(name, c, a.cert, a.key)
	pair, err := tls.LoadX509KeyPair(a.path(name+".pem"), a.path(name+".key"))
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// as dials with a certificate, or without one.
func (a *authority) as(certs ...tls.Certificate) grpc.DialOption {
	return grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: a.pool, Certificates: certs, MinVersion: tls.VersionTLS12}))
}

// TLS on both sides, each end verifying the other: everything works, a client
// without a certificate or with one of somebody else's gets nothing, and Secrets
// are kept apart by what the certificate proves, whatever a client says of itself
// (NODE-6).
func TestMutualTLSKeepsSecretsApart(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ours")
	server := ca.issue("control-plane", "")
	ca.issue("relay", "")
	alice, bob := ca.issue("alice", "spiffe://example.org/alice"), ca.issue("bob", "spiffe://example.org/bob")
	mallory := newAuthority(t, "somebody else's").issue("mallory", "spiffe://example.org/alice")

	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	secrets := newLinear(t, cache.Secret)
	secret := func(revision byte) []byte { return []byte{0x0a, 0x01, 's', 0x10, revision} }
	secrets.Set(cache.Secret, "s", raw(secret(1)))
	mux := w.Mux().(*gcp.MuxCache)
	mux.Caches[string(cache.Secret)] = secrets.Mux()
	cp := startControlPlane(t, mux, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{server}, ClientCAs: ca.pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	})))
	r := startRelay(t, cp.addr,
		"upstream.tls.ca="+ca.path("ca.pem"), "upstream.tls.cert="+ca.path("relay.pem"), "upstream.tls.key="+ca.path("relay.key"),
		"downstream.tls.cert="+ca.path("relay.pem"), "downstream.tls.key="+ca.path("relay.key"), "downstream.tls.client_ca="+ca.path("ca.pem"),
		"upstream.node_mode=template", "groups.secrets=identity")

	// Both say that they are the same node.
	a, b := startEnvoy(t, r.addr, "node", nil, ca.as(alice)), startEnvoy(t, r.addr, "node", nil, ca.as(bob))
	a2 := openDelta(t, r.addr, "another node", ca.as(alice))
	for _, c := range []*deltaClient{a.deltaClient, b.deltaClient, a2} {
		c.Subscribe(cache.Secret, "s")
	}
	eventually(t, patience, func() error {
		for _, c := range []*deltaClient{a.deltaClient, b.deltaClient, a2} {
			if err := c.Has(cache.Secret, "s"); err != nil {
				return err
			}
		}
		return first(a.Has(cache.Endpoint, "a-cluster"), b.Has(cache.Endpoint, "a-cluster"))
	})
	// One stream for all that is shared, and one for each identity's secrets.
	var nodes []string
	cp.see(func(streams []*upstreamStream) {
		for _, s := range streams {
			if s.requests[cache.Secret] > 0 {
				nodes = append(nodes, s.node.GetId())
				if len(s.requests) > 1 {
					t.Errorf("secrets share a stream with other types: %v", s.requests)
				}
			}
		}
	})
	// The identity is the key of these groups, and no client's own word (NODE-7).
	if err := first(is("streams upstream", cp.Open(), 3), is("streams of secrets", len(nodes), 2)); err != nil {
		t.Error(err)
	} else if nodes[0] == nodes[1] || !strings.HasPrefix(nodes[0], "xds-relay/") || !strings.HasPrefix(nodes[1], "xds-relay/") {
		t.Errorf("nodes of the groups of secrets: %q", nodes)
	}

	for _, stranger := range []grpc.DialOption{ca.as(), ca.as(mallory)} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		stream, err := discovery.NewAggregatedDiscoveryServiceClient(dial(t, r.addr, stranger)).DeltaAggregatedResources(ctx)
		if err == nil {
			_ = stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "node"}, TypeUrl: string(cache.Cluster)})
			_, err = stream.Recv()
		}
		cancel()
		if err := is("a stranger's stream", status.Code(err), codes.Unavailable); err != nil {
			t.Error(err)
		}
	}
	if err := first(a.Sound(), b.Sound(), a2.Sound(), cp.deltaADSOnly()); err != nil {
		t.Error(err)
	}
}

// Where the identity is the key, it alone tells groups apart, whatever clients say of
// themselves; a client's secrets are in its group already (NODE-4, NODE-6, H-23).
func TestIdentityIsAKey(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ours")
	ca.issue("relay", "")
	alice, bob := ca.issue("alice", "spiffe://example.org/alice"), ca.issue("bob", "spiffe://example.org/bob")
	w := newLinear(t, cache.Secret, cache.Cluster)
	w.Set(cache.Secret, "s", raw([]byte{0x0a, 0x01, 's'}))
	w.Set(cache.Cluster, "c", raw([]byte{0x0a, 0x01, 'c'}))
	cp := startControlPlane(t, w.Mux())
	r := startRelay(t, cp.addr, "groups.key=[identity]",
		"downstream.tls.cert="+ca.path("relay.pem"), "downstream.tls.key="+ca.path("relay.key"), "downstream.tls.client_ca="+ca.path("ca.pem"))
	clients := []*deltaClient{
		openDelta(t, r.addr, "node", ca.as(alice)), openDelta(t, r.addr, "node", ca.as(bob)), openDelta(t, r.addr, "another", ca.as(alice)),
	}
	for _, c := range clients {
		c.Subscribe(cache.Secret, "s")
		c.Subscribe(cache.Cluster, "c")
	}
	eventually(t, patience, func() error {
		for _, c := range clients {
			if err := first(c.Has(cache.Secret, "s"), c.Has(cache.Cluster, "c")); err != nil {
				return err
			}
		}
		return nil
	})
	var nodes []string
	cp.see(func(streams []*upstreamStream) {
		for _, s := range streams {
			nodes = append(nodes, s.node.GetId())
		}
	})
	if err := is("streams upstream", len(nodes), 2); err != nil || nodes[0] == nodes[1] {
		t.Errorf("%v: %q", err, nodes)
	}
}

// The versions of secrets say nothing of a weak secret where there is a key
// (RECON-1), and never end up in the log.
func TestSecretsOnLoopbackByNode(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newLinear(t, cache.Secret)
	w.Set(cache.Secret, "s", raw([]byte{0x0a, 0x01, 's', 0x12, 0x06, 'h', 'u', 'n', 't', 'e', 'r'}))
	cp := startControlPlane(t, w.Mux())
	plain, keyed := startRelay(t, cp.addr), startRelay(t, cp.addr, "version_key_file="+key)
	one, same, two := openDelta(t, plain.addr, "one"), openDelta(t, plain.addr, "one"), openDelta(t, plain.addr, "two")
	withKey := openDelta(t, keyed.addr, "one")
	for _, c := range []*deltaClient{one, same, two, withKey} {
		c.Subscribe(cache.Secret, "s")
		eventually(t, patience, func() error { return c.Has(cache.Secret, "s") })
	}
	h, _ := one.Get(cache.Secret, "s")
	k, _ := withKey.Get(cache.Secret, "s")
	if h.version == k.version {
		t.Errorf("the key changes nothing of the version %s", h.version)
	}
	if err := first(is("streams upstream", cp.Open(), 3), one.Sound(), same.Sound(), two.Sound(), withKey.Sound()); err != nil {
		t.Error(err)
	}
	for _, r := range []*relayed{plain, keyed} {
		if lines := r.log.Lines("hunter"); len(lines) > 0 {
			t.Errorf("a secret is in the log: %s", strings.Join(lines, ""))
		}
	}
}

// A relay listens on a Unix socket, beside TCP, and takes the place of a socket
// that nobody listens on any more.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "e2e") // t.TempDir's names may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := "unix://" + filepath.Join(dir, "relay.sock")
	// A dead socket, as a relay leaves one that was killed.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "relay.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()

	w := newLinear(t)
	w.service("a", startBackend(t, "blue"))
	cp := startControlPlane(t, w.Mux())
	log := newLog(t)
	r := newRelay(t, log, relay.Options{}, cp.addr, fmt.Sprintf("downstream.listen=[%q, %q]", socket, "127.0.0.1:0"))
	listeners, err := r.Listen()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range listeners {
		r.Serve(l)
	}
	overUnix, overTCP := startEnvoy(t, socket, "unix", nil), startEnvoy(t, listeners[1].Addr().String(), "tcp", nil)
	a := startApp(t, socket, "app", "a")
	eventually(t, patience, func() error {
		return first(overUnix.Has(cache.Endpoint, "a-cluster"), overTCP.Has(cache.Endpoint, "a-cluster"), a.Reaches("blue"))
	})
	info, err := os.Stat(filepath.Join(dir, "relay.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := first(is("mode of the socket", info.Mode().Perm(), 0o660), overUnix.Sound(), overTCP.Sound()); err != nil {
		t.Error(err)
	}
	if _, err := relay.Listen(socket); err == nil {
		t.Error("the socket of a running relay was taken over")
	}
}
