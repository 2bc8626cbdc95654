package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/certs/certstest"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// tally counts what a relay tells of certificates.
type tally struct {
	reloads  atomic.Int64
	mu       sync.Mutex
	failures map[string]int // handshakes, by "hop reason"
}

func (c *tally) CertificatesReloaded(bool) { c.reloads.Add(1) }

func (c *tally) HandshakeFailed(hop certs.Hop, reason certs.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failures == nil {
		c.failures = make(map[string]int)
	}
	c.failures[fmt.Sprint(hop, " ", reason)]++
}

// only says what has been counted unless it is one kind of failure.
func (c *tally) only(want string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failures) != 1 || c.failures[want] == 0 {
		return fmt.Errorf("handshakes that failed: %v, want only %q", maps.Clone(c.failures), want)
	}
	return nil
}

// some says that a kind of failure has not been counted.
func (c *tally) some(want string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failures[want] == 0 {
		return fmt.Errorf("handshakes that failed: %v, want some %q", maps.Clone(c.failures), want)
	}
	return nil
}

// none says what has been counted.
func (c *tally) none() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failures) > 0 {
		return fmt.Errorf("handshakes that failed: %v, want none", maps.Clone(c.failures))
	}
	return nil
}

// issued is a certificate with its key, as files and as a pair.
type issued struct {
	files map[string][]byte
	pair  tls.Certificate
}

func issue(t *testing.T, a *certstest.Authority, c x509.Certificate) issued {
	t.Helper()
	cert, key := a.Issue(t, c)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return issued{map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": a.PEM}, pair}
}

// The control plane trusts another authority from one moment to the next, and refuses the
// relay. When the relay's files have been replaced it is let in again by itself, and its
// clients have not noticed but that nothing came.
func TestRefusedUntilTheFilesAreReplaced(t *testing.T) {
	t.Parallel()
	before, after := certstest.NewAuthority(t, "before"), certstest.NewAuthority(t, "after")
	var plane atomic.Pointer[tls.Config]
	demand := func(a *certstest.Authority) {
		plane.Store(&tls.Config{
			Certificates: []tls.Certificate{issue(t, a, x509.Certificate{}).pair}, MinVersion: tls.VersionTLS12,
			ClientCAs: a.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
		})
	}
	demand(before)
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	cp := startControlPlane(t, w.Mux(), grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return plane.Load(), nil },
	})))
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	both := append(slices.Clone(before.PEM), after.PEM...) // it is not the relay that refuses
	replace := func(a *certstest.Authority) {
		files := issue(t, a, x509.Certificate{}).files
		files["ca.crt"] = both
		certstest.Swap(t, dir, files)
	}
	replace(before)
	var counted tally
	r := startRelayWith(t, relay.Options{Certificates: &counted, Follow: certs.Options{Poll: time.Hour}}, cp.addr,
		append(quickBackoff, "upstream.tls.ca="+path("ca.crt"), "upstream.tls.cert="+path("tls.crt"), "upstream.tls.key="+path("tls.key"))...)
	c := openDelta(t, r.addr, "client")
	c.Wildcard(cache.Cluster)
	eventually(t, patience, func() error { return c.Has(cache.Cluster, "a-cluster") })

	cp.Stop()
	demand(after)
	w.service("b", "127.0.0.1:1")
	cp.Start()
	eventually(t, patience, func() error { return counted.only("upstream unknown_ca") })
	replace(after)
	eventually(t, patience, func() error { return c.Has(cache.Cluster, "a-cluster", "b-cluster") })
	if err := first(c.End(), c.Sound(), is("reloads", counted.reloads.Load(), 1)); err != nil {
		t.Error(err)
	}
}

// Why the relay and a control plane do not get on is counted, whichever end refuses the
// other, with both versions of TLS.
func TestUpstreamHandshakesAreToldApart(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ours, theirs := certstest.NewAuthority(t, "ours"), certstest.NewAuthority(t, "theirs")
	dir := t.TempDir()
	good := issue(t, ours, x509.Certificate{})
	certstest.InPlace(t, dir, good.files)
	expired := issue(t, ours, x509.Certificate{NotAfter: now.Add(-time.Minute)})
	certstest.InPlace(t, dir, map[string][]byte{"old.crt": expired.files["tls.crt"], "old.key": expired.files["tls.key"]})
	stranger := issue(t, theirs, x509.Certificate{})
	certstest.InPlace(t, dir, map[string][]byte{"other.crt": stranger.files["tls.crt"], "other.key": stranger.files["tls.key"]})
	showing := func(name string) string {
		return fmt.Sprintf("upstream.tls={ca: %q, cert: %q, key: %q}", filepath.Join(dir, "ca.crt"), filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	}
	trusting := "upstream.tls.ca=" + filepath.Join(dir, "ca.crt")
	for _, tt := range []struct {
		name    string
		server  issued
		demands bool
		set     []string
		want    string
	}{
		{"expired", expired, false, []string{trusting}, "expired"},
		{"not yet valid", issue(t, ours, x509.Certificate{NotBefore: now.Add(time.Hour)}), false, []string{trusting}, "not_yet_valid"},
		{"wrong authority", stranger, false, []string{trusting}, "unknown_ca"},
		{"wrong name", good, false, []string{trusting, "upstream.tls.server_name=xds.example"}, "wrong_name"},
		{"no certificate shown", good, true, []string{trusting}, "no_certificate"},
		{"no certificate shown, leniently", good, true, []string{trusting, "upstream.tls.alpn=lenient"}, "no_certificate"},
		{"one of another authority", good, true, []string{showing("other")}, "unknown_ca"},
		{"one that has expired", good, true, []string{showing("old")}, "expired"},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(tt.name+", "+tls.VersionName(version), func(t *testing.T) {
				t.Parallel()
				server := &tls.Config{Certificates: []tls.Certificate{tt.server.pair}, MinVersion: version, MaxVersion: version}
				if tt.demands {
					server.ClientCAs, server.ClientAuth = ours.Pool(), tls.RequireAndVerifyClientCert
				}
				cp := startControlPlane(t, newLinear(t).Mux(), grpc.Creds(credentials.NewTLS(server)))
				var counted tally
				r := startRelayWith(t, relay.Options{Certificates: &counted}, cp.addr, tt.set...)
				c := openDelta(t, r.addr, "client")
				c.Wildcard(cache.Cluster)
				eventually(t, patience, func() error { return counted.only("upstream " + tt.want) })
			})
		}
	}
}

// Why clients cannot connect is counted and logged, whichever end refuses the other.
func TestDownstreamHandshakesAreToldApart(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ours, theirs := certstest.NewAuthority(t, "ours"), certstest.NewAuthority(t, "theirs")
	good := issue(t, ours, x509.Certificate{})
	for _, tt := range []struct {
		name   string
		relay  issued
		client *tls.Config // nil: plaintext
		want   string
		says   string
		shown  string
	}{
		{"expired", good, &tls.Config{Certificates: []tls.Certificate{issue(t, ours, x509.Certificate{Subject: pkix.Name{CommonName: "envoy-7", Organization: []string{"shop"}}, NotAfter: now.Add(-time.Minute)}).pair}}, "expired", "its certificate has expired", "subject=\"CN=envoy-7,O=shop\""},
		{"not yet valid", good, &tls.Config{Certificates: []tls.Certificate{issue(t, ours, x509.Certificate{NotBefore: now.Add(time.Hour)}).pair}}, "not_yet_valid", "its certificate is not valid yet", "subject="},
		{"wrong authority", good, &tls.Config{Certificates: []tls.Certificate{issue(t, theirs, x509.Certificate{DNSNames: []string{"envoy.shop"}}).pair}}, "unknown_ca", "signed by nobody in downstream.tls.client_ca", "subject=envoy.shop"},
		{"no certificate", good, &tls.Config{}, "no_certificate", "it shows no certificate", "subject="},
		{"plaintext", good, nil, "protocol", "it does not speak TLS", "subject="},
		{"the relay's has expired", issue(t, ours, x509.Certificate{NotAfter: now.Add(-time.Minute)}), &tls.Config{Certificates: []tls.Certificate{good.pair}}, "expired", "downstream.tls.cert, which has expired", "subject="},
		{"the relay's is not valid yet", issue(t, ours, x509.Certificate{NotBefore: now.Add(time.Hour)}), &tls.Config{Certificates: []tls.Certificate{good.pair}}, "not_yet_valid", "downstream.tls.cert, which is not valid yet", "subject="},
		{"another name", good, &tls.Config{Certificates: []tls.Certificate{good.pair}, ServerName: "xds.example"}, "refused", "call the relay by a name that is in it", "subject="},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			certstest.InPlace(t, dir, tt.relay.files)
			var counted tally
			r := startRelayWith(t, relay.Options{Certificates: &counted}, "127.0.0.1:1",
				"downstream.tls.cert="+filepath.Join(dir, "tls.crt"), "downstream.tls.key="+filepath.Join(dir, "tls.key"), "downstream.tls.client_ca="+filepath.Join(dir, "ca.crt"))
			creds := insecure.NewCredentials()
			if tt.client != nil {
				config := tt.client.Clone()
				config.RootCAs, config.MinVersion = ours.Pool(), tls.VersionTLS12
				if len(config.Certificates) > 0 { // whoever the relay says that it trusts
					config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &config.Certificates[0], nil }
				}
				creds = credentials.NewTLS(config)
			}
			if code := refusedWith(t, r.addr, creds); code != codes.Unavailable {
				t.Errorf("the client is told %v", code)
			}
			eventually(t, patience, func() error {
				if lines := r.log.Lines("a client could not connect: ", tt.says, "reason="+tt.want, "peer=127.0.0.1:", tt.shown); len(lines) == 0 {
					return fmt.Errorf("the log does not say %q", tt.says)
				}
				return counted.only("downstream " + tt.want)
			})
		})
	}
}

// Who does not speak plaintext gRPC to a relay that does is named in the log; a probe of the port is not.
func TestPlaintextIsNotUnderstood(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ sends, says string }{
		"TLS":       {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "it speaks TLS, and downstream.tls is not set"},
		"HTTP/1.1":  {"POST /v3/discovery:clusters HTTP/1.1\r\n", "it does not speak HTTP/2"},
		"one byte":  {"G", "it does not speak HTTP/2"},
		"a probe":   {"", ""},
		"a part":    {"PRI", ""},
		"a preface": {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var counted tally
			r := startRelayWith(t, relay.Options{Certificates: &counted}, "127.0.0.1:1")
			conn, err := net.Dial("tcp", r.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte(tt.sends)); err != nil {
				t.Fatal(err)
			}
			if tt.says == "" {
				conn.Close()
				c := openDelta(t, r.addr, "client") // the relay goes on
				c.Subscribe(cache.Cluster, "c")
				eventually(t, patience, func() error { return is("clients", r.Count(), 1) })
				if lines := r.log.Lines("could not connect"); len(lines) > 0 {
					t.Errorf("the log says %s", lines)
				}
				return
			}
			eventually(t, patience, func() error {
				if len(r.log.Lines("level=WARN", "a client could not connect: "+tt.says, "reason=protocol", "peer="+conn.LocalAddr().String(), "it begins with")) == 0 {
					return fmt.Errorf("the log does not say %q", tt.says)
				}
				return counted.only("downstream protocol")
			})
		})
	}
}

// A client that resumes a session is judged by the authorities of now, and one whose
// stream is open goes on.
func TestResumedSessionsAreJudgedAgain(t *testing.T) {
	t.Parallel()
	before, after := certstest.NewAuthority(t, "before"), certstest.NewAuthority(t, "after")
	dir := t.TempDir()
	files := issue(t, before, x509.Certificate{}).files
	certstest.Rename(t, dir, files)
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	cp := startControlPlane(t, w.Mux())
	r := startRelay(t, cp.addr,
		"downstream.tls.cert="+filepath.Join(dir, "tls.crt"), "downstream.tls.key="+filepath.Join(dir, "tls.key"), "downstream.tls.client_ca="+filepath.Join(dir, "ca.crt"))
	var resumed atomic.Int64
	creds := credentials.NewTLS(&tls.Config{
		RootCAs: before.Pool(), Certificates: []tls.Certificate{issue(t, before, x509.Certificate{}).pair}, MinVersion: tls.VersionTLS12,
		ClientSessionCache: tls.NewLRUClientSessionCache(1),
		VerifyConnection: func(s tls.ConnectionState) error {
			if s.DidResume {
				resumed.Add(1)
			}
			return nil
		},
	})
	a := openDelta(t, r.addr, "a", grpc.WithTransportCredentials(creds))
	a.Wildcard(cache.Cluster)
	eventually(t, patience, func() error { return a.Has(cache.Cluster, "a-cluster") })
	b := openDelta(t, r.addr, "b", grpc.WithTransportCredentials(creds))
	b.Wildcard(cache.Cluster)
	eventually(t, patience, func() error {
		return first(b.Has(cache.Cluster, "a-cluster"), is("sessions resumed", resumed.Load(), 1))
	})

	certstest.Rename(t, dir, map[string][]byte{"ca.crt": after.PEM})
	eventually(t, patience, func() error {
		if len(r.log.Lines("certificates reloaded", "changed=authorities")) == 0 {
			return errors.New("the authorities are not reloaded")
		}
		return nil
	})
	if err := is("what a new client is told", refusedWith(t, r.addr, creds), codes.Unavailable); err != nil {
		t.Error(err)
	}
	w.service("b", "127.0.0.1:1")
	eventually(t, patience, func() error {
		return first(a.Has(cache.Cluster, "a-cluster", "b-cluster"), b.Has(cache.Cluster, "a-cluster", "b-cluster"))
	})
	if err := first(a.Sound(), b.Sound()); err != nil {
		t.Error(err)
	}
}

// refusedWith is what a client is told that connects with some credentials.
func refusedWith(t *testing.T, address string, creds credentials.TransportCredentials) codes.Code {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(dial(t, address, grpc.WithTransportCredentials(creds))).DeltaAggregatedResources(ctx)
	if err == nil {
		_ = stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "node"}, TypeUrl: string(cache.Cluster)}) // Recv has the reason
		_, err = stream.Recv()
	}
	return status.Code(err)
}
