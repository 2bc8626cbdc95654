package envoygateway

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// tap records what is said. To who comes to it it is Envoy Gateway, to what is behind it an
// Envoy.
type tap struct {
	*peer.Tap
	lines, sent int // marks: when it was last asked
}

// startTap passes on to an address until the test ends.
func startTap(t testing.TB, g *gateway, to string) *tap {
	t.Helper()
	own, pool := certificates(t, g.Certificates("envoy-gateway"))
	return &tap{Tap: peer.StartTap(t, "what was said to "+to, to, peer.TapOptions{
		Serve: credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		}),
		Dial: asEnvoy(t, g),
	})}
}

// Lines are what was said since it was last asked.
func (p *tap) Lines() string {
	from := p.lines
	p.lines = p.Mark()
	return peer.Spell(p.Since(from)[:p.lines-from])
}

// Sent are the resources that have gone by since it was last asked: how often each, by
// type and name.
func (p *tap) Sent() map[string]int {
	said, sent := p.Since(p.sent), make(map[string]int)
	p.sent += len(said)
	for _, s := range said {
		if !s.Response {
			continue
		}
		for _, name := range s.Names {
			sent[s.URL.Short()+" "+name]++
		}
	}
	return sent
}

// asEnvoy are the credentials that an Envoy has.
func asEnvoy(t testing.TB, g *gateway) credentials.TransportCredentials {
	t.Helper()
	own, pool := certificates(t, g.Certificates("envoy"))
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, RootCAs: pool, ServerName: "envoy-gateway",
	})
}

// dial is a connection as an Envoy has one.
func dial(t testing.TB, g *gateway, to string) *grpc.ClientConn {
	t.Helper()
	soon := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second}
	c, err := grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(asEnvoy(t, g)),
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
