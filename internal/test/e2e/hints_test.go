package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	gcpserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
)

// hintWithin is when an operator and a client have been told what is wrong.
const hintWithin = 20 * time.Second

// What keeps the relay from its control plane is said in plain words, with the address
// and the key to set, in the log and to clients (ERR-7). Each server is a real one; what
// gRPC says of it by itself differs from run to run.
func TestHints(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t, "ours"), newAuthority(t, "somebody else's")
	ours := ca.issue("control-plane", "")
	ca.issue("relay", "")
	other.issue("stranger", "")
	expired := ca.pair("expired", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(-time.Minute)})
	early := ca.pair("early", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(time.Hour), NotAfter: time.Now().Add(2 * time.Hour)})
	byName := ca.pair("by-name", &x509.Certificate{DNSNames: []string{"xds.example"}})

	// serves is a control plane that speaks TLS, as grpc-go has it.
	serves := func(c *tls.Config) func(*testing.T) string {
		return func(t *testing.T) string {
			return startControlPlane(t, newLinear(t).Mux(), grpc.Creds(credentials.NewTLS(c))).addr
		}
	}
	trusting := "upstream.tls.ca=" + ca.path("ca.pem")
	withCert := []string{trusting, "upstream.tls.cert=" + ca.path("relay.pem"), "upstream.tls.key=" + ca.path("relay.key")}
	withExpired := []string{trusting, "upstream.tls.cert=" + ca.path("expired.pem"), "upstream.tls.key=" + ca.path("expired.key")}
	withOther := []string{trusting, "upstream.tls.cert=" + other.path("stranger.pem"), "upstream.tls.key=" + other.path("stranger.key")}
	plain := func(t *testing.T) string { return startControlPlane(t, newLinear(t).Mux()).addr }
	reserved := func(t *testing.T) string { return loopback.Reserve(t) }
	demanding := func(version uint16) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{ours}, ClientCAs: ca.pool, ClientAuth: tls.RequireAndVerifyClientCert, MaxVersion: version}
	}
	const (
		noCertificate = "ADDRESS wants a client certificate: set upstream.tls.cert and upstream.tls.key"
		badName       = "ADDRESS has no certificate for the name that the relay expects: set upstream.tls.server_name"
		isPlain       = "ADDRESS does not speak TLS: set upstream.address to its port for TLS, or leave upstream.tls out"
		maybePlain    = "ADDRESS hangs up on TLS: if it speaks plaintext, leave upstream.tls out"
		maybeTLS      = "ADDRESS does not answer in plaintext: if it speaks TLS, set upstream.tls.ca"
		refused       = "ADDRESS does not accept the client certificate: "
		isShut        = "ADDRESS refuses connections: see whether the control plane runs, and whether upstream.address"
		notHTTP2      = "ADDRESS does not speak HTTP/2 there: set upstream.address"
	)
	tests := []struct {
		name   string
		server func(*testing.T) string
		sets   []string
		want   string
	}{
		{"no ALPN", overTLS(&tls.Config{Certificates: []tls.Certificate{ours}}), []string{trusting},
			"ADDRESS selects no application protocol (ALPN): if it is a gRPC server all the same, as Consul is, set upstream.tls.alpn: lenient"},
		{"another protocol", overTLS(&tls.Config{Certificates: []tls.Certificate{ours}, NextProtos: []string{"http/1.1"}}), []string{trusting}, notHTTP2},
		{"another protocol, leniently", selecting("h9", &tls.Config{Certificates: []tls.Certificate{ours}, NextProtos: []string{"h2"}, MaxVersion: tls.VersionTLS12}),
			[]string{trusting, "upstream.tls.alpn=lenient"}, notHTTP2},
		{"no client certificate", serves(demanding(0)), []string{trusting}, noCertificate},
		{"no client certificate, TLS 1.2", serves(demanding(tls.VersionTLS12)), []string{trusting}, noCertificate},
		{"no client certificate, leniently", overTLS(demanding(0)), []string{trusting, "upstream.tls.alpn=lenient"}, noCertificate},
		{"no client certificate, and not a word about it", hangingUp(&tls.Config{
			Certificates: []tls.Certificate{ours}, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2"},
		}), []string{trusting}, noCertificate},
		{"the wrong client certificate", serves(&tls.Config{Certificates: []tls.Certificate{ours}, ClientCAs: ca.pool, ClientAuth: tls.RequireAndVerifyClientCert}), withOther, refused},
		{"a client certificate that nobody trusts", serves(&tls.Config{
			Certificates: []tls.Certificate{ours}, ClientCAs: x509.NewCertPool(), ClientAuth: tls.RequireAndVerifyClientCert,
		}), withCert, refused},
		{"a client certificate, and not a word about it", hangingUp(&tls.Config{
			Certificates: []tls.Certificate{ours}, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2"},
		}), withCert, refused},
		{"HTTP/1.1 over TLS, leniently", webServerOver(&tls.Config{Certificates: []tls.Certificate{ours}}),
			[]string{trusting, "upstream.tls.alpn=lenient"}, notHTTP2},
		{"the wrong authority", serves(&tls.Config{Certificates: []tls.Certificate{ours}}), []string{"upstream.tls.ca=" + other.path("ca.pem")},
			"ADDRESS has a certificate from an authority that is not trusted: set upstream.tls.ca"},
		{"the wrong name", serves(&tls.Config{Certificates: []tls.Certificate{ours}}), []string{trusting, "upstream.tls.server_name=xds.example"}, badName},
		{"another name", serves(&tls.Config{Certificates: []tls.Certificate{byName}}), []string{trusting, "upstream.tls.server_name=other.example"}, badName},
		{"an address for a name", serves(&tls.Config{Certificates: []tls.Certificate{byName}}), []string{trusting}, badName},
		{"expired", serves(&tls.Config{Certificates: []tls.Certificate{expired}}), []string{trusting},
			"ADDRESS has a certificate that has expired: "},
		{"not valid yet", serves(&tls.Config{Certificates: []tls.Certificate{early}}), []string{trusting},
			"ADDRESS has a certificate that is not valid yet: "},
		{"an expired client certificate", serves(demanding(tls.VersionTLS12)), withExpired, refused + "it has expired; renew the files of upstream.tls.cert"},
		{"TLS to plaintext", plain, []string{trusting}, isPlain},
		{"TLS to HTTP/1.1", webServer, []string{trusting}, isPlain},
		{"TLS to who hangs up", hangingUp(nil), []string{trusting}, maybePlain},
		{"plaintext to TLS", serves(&tls.Config{Certificates: []tls.Certificate{ours}}), nil, maybeTLS},
		{"plaintext to mutual TLS", serves(demanding(0)), nil, maybeTLS},
		{"plaintext to HTTP/1.1", webServer, nil, maybeTLS},
		{"plaintext to a closed port", reserved, nil, isShut},
		{"TLS to a closed port", reserved, []string{trusting}, isShut},
	}
	// All at once: each is little but waiting.
	var relays []*relayed
	var clients []*deltaClient
	for i := range tests {
		address := tests[i].server(t)
		tests[i].want = strings.ReplaceAll(tests[i].want, "ADDRESS", address)
		r := startRelay(t, address, tests[i].sets...)
		c := openDelta(t, r.addr, tests[i].name)
		c.Subscribe(cache.Cluster, "c")
		relays, clients = append(relays, r), append(clients, c)
	}
	begin := time.Now()
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			eventually(t, hintWithin-time.Since(begin), func() error {
				if len(relays[i].log.Lines("level=WARN", "cannot reach the control plane", test.want)) == 0 {
					return fmt.Errorf("the log does not say: %s", test.want)
				}
				if err := clients[i].End(); err == nil || !strings.Contains(err.Error(), test.want) {
					return fmt.Errorf("the client was told %v, not: %s", err, test.want)
				}
				return nil
			})
			t.Logf("after at most %v: %v", time.Since(begin), clients[i].End())
		})
	}
}

// The hint for a fallback names the keys of the fallback.
func TestHintsKnowTheEntry(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ours")
	other := startControlPlane(t, newLinear(t).Mux())
	r := startRelay(t, loopback.Reserve(t), append(quickBackoff, fmt.Sprintf("upstream.fallbacks=[{address: %q, tls: {ca: %q}}]", other.addr, ca.path("ca.pem")))...)
	c := openDelta(t, r.addr, "client")
	c.Wildcard(cache.Cluster)
	want := other.addr + " does not speak TLS: set upstream.fallbacks[0].address to its port for TLS, or leave upstream.fallbacks[0].tls out"
	eventually(t, patience, func() error {
		if len(r.log.Lines(want)) == 0 {
			return fmt.Errorf("the log does not say: %s", want)
		}
		return nil
	})
}

// After a connection was lost each new reason has its hint, too. None of them blames the
// configuration, with which the control plane was reached before.
func TestHintsAfterALoss(t *testing.T) {
	t.Parallel()
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	cp := startControlPlane(t, w.Mux())
	r := startRelay(t, cp.addr, quickBackoff...)
	c := openDelta(t, r.addr, "client")
	c.Wildcard(cache.Cluster)
	says := func(want ...string) {
		t.Helper()
		eventually(t, patience, func() error {
			if len(r.log.Lines(want...)) == 0 {
				return fmt.Errorf("no line says: %q", want)
			}
			return nil
		})
	}
	for range 2 { // outages
		eventually(t, patience, func() error { return c.Has(cache.Cluster, "a-cluster") })
		before := len(r.log.Lines("refuses connections, and did not before"))
		cp.Stop()
		eventually(t, patience, func() error {
			if len(r.log.Lines("level=WARN", "cannot reach the control plane", cp.addr+" refuses connections, and did not before: see whether the control plane runs")) == before {
				return errors.New("no line says that it refuses connections")
			}
			return nil
		})
		cp.Start()
		says("the control plane answers again")
	}
	cp.Stop()
	hangingUpOn(t, nil, listenAt(t, cp.addr)) // as a proxy does whose control plane is away
	says("level=WARN", "cannot reach the control plane", cp.addr+" hangs up at once, and did not before: see whether the control plane runs behind what listens there")
	if lines := r.log.Lines("if it speaks TLS"); len(lines) > 0 {
		t.Errorf("an outage is taken for a mistake: %v", lines)
	}
}

// With lenient a server that selects no protocol is served from, and one that does as it
// should, too.
func TestLenientALPN(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ours")
	config := &tls.Config{Certificates: []tls.Certificate{ca.issue("control-plane", "")}}
	withALPN := config.Clone()
	withALPN.NextProtos = []string{"h2"}
	old := config.Clone()
	old.MaxVersion = tls.VersionTLS12
	for name, c := range map[string]*tls.Config{"none": config, "none, TLS 1.2": old, "h2": withALPN} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRelay(t, overTLS(c)(t), "upstream.tls.ca="+ca.path("ca.pem"), "upstream.tls.alpn=lenient")
			a := openDelta(t, r.addr, "client")
			a.Wildcard(cache.Cluster)
			eventually(t, patience, func() error { return a.Has(cache.Cluster, "a-cluster") })
			if err := a.Sound(); err != nil {
				t.Error(err)
			}
		})
	}
}

// overTLS is a control plane behind TLS that gRPC does not look at, as Consul has it.
func overTLS(c *tls.Config) func(*testing.T) string {
	return func(t *testing.T) string { return serveADS(t, tls.NewListener(listenAt(t, "127.0.0.1:0"), c)) }
}

func serveADS(t *testing.T, l net.Listener) string {
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	s := grpc.NewServer()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	discovery.RegisterAggregatedDiscoveryServiceServer(s, gcpserver.NewServer(ctx, w.Mux(), nil))
	serve(t, l, s)
	return l.Addr().String()
}

// selecting is a control plane that selects a protocol of its own; the handshake gets
// no further.
func selecting(protocol string, c *tls.Config) func(*testing.T) string {
	return func(t *testing.T) string {
		return serveADS(t, tls.NewListener(relabelling{listenAt(t, "127.0.0.1:0"), protocol}, c))
	}
}

// relabelling has its connections say that another protocol than h2 is selected.
type relabelling struct {
	net.Listener
	protocol string
}

func (l relabelling) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return relabelled{c, l.protocol}, err
}

type relabelled struct {
	net.Conn
	protocol string
}

func (c relabelled) Write(b []byte) (int, error) {
	const alpn = "\x00\x10\x00\x05\x00\x03\x02" // the extension, with one name of two letters
	return c.Conn.Write(bytes.Replace(b, []byte(alpn+"h2"), []byte(alpn+c.protocol), 1))
}

// hangingUp is a server that ends each connection once a TLS handshake, if any, is over.
func hangingUp(c *tls.Config) func(*testing.T) string {
	return func(t *testing.T) string { return hangingUpOn(t, c, listenAt(t, "127.0.0.1:0")) }
}

func hangingUpOn(t *testing.T, c *tls.Config, l net.Listener) string {
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if c != nil {
				_ = tls.Server(conn, c).Handshake() // a test that fails says so
			}
			conn.Close()
		}
	})
	t.Cleanup(func() { l.Close(); accepting.Wait() })
	return l.Addr().String()
}

// webServer speaks HTTP/1.1 in plaintext.
func webServer(t *testing.T) string { return serveWeb(t, listenAt(t, "127.0.0.1:0")) }

// webServerOver speaks it over TLS.
func webServerOver(c *tls.Config) func(*testing.T) string {
	return func(t *testing.T) string { return serveWeb(t, tls.NewListener(listenAt(t, "127.0.0.1:0"), c)) }
}

func serveWeb(t *testing.T, l net.Listener) string {
	s := &http.Server{ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0)}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) }) // it ends with the test
	t.Cleanup(func() { s.Close(); serving.Wait() })
	return l.Addr().String()
}

func listenAt(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
