package envoy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// identity is a certificate and its key, known by its serial number.
type identity struct {
	serial    int64
	cert, key []byte // PEM
}

func newIdentity(t testing.TB, serial int64) *identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "web"}, DNSNames: []string{"web"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &identity{
		serial: serial,
		cert:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		key:    pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

// secret is the identity as a resource.
func (id *identity) secret(name string) *tlsv3.Secret {
	inline := func(text []byte) *core.DataSource {
		return &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: text}}
	}
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline(id.cert), PrivateKey: inline(id.key),
	}}}
}

// secured is a listener that shows a secret's certificate.
func (m maker) secured(name, routeName, secret string) *listener.Listener {
	l := m.listener(name, routeName)
	l.FilterChains[0].TransportSocket = &core.TransportSocket{
		Name: "envoy.transport_sockets.tls",
		ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: mustAny(&tlsv3.DownstreamTlsContext{
			CommonTlsContext: &tlsv3.CommonTlsContext{
				TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: secret, SdsConfig: m.source}},
			},
		})},
	}
	return l
}

// presented is the serial number of the certificate that is shown at an address.
func presented(address string) (int64, error) {
	d := &net.Dialer{Timeout: 5 * time.Second}
	//nolint:gosec // who it is is what is asked here
	c, err := tls.DialWithDialer(d, "tcp", address, &tls.Config{InsecureSkipVerify: true, ServerName: "web"})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

func (id *identity) presentedAt(address string) error {
	serial, err := presented(address)
	if err != nil {
		return err
	}
	return peer.Is("serial number", serial, id.serial)
}

// handshakes are clients that connect to an address all the time.
type handshakes struct {
	shown  atomic.Int64 // the serial number of the last certificate
	count  int
	failed []error
	stop   func()
}

// shakeHands starts them. They end with the test, if not before.
func shakeHands(t testing.TB, address string) *handshakes {
	h := &handshakes{}
	done, work := make(chan struct{}), sync.WaitGroup{}
	h.stop = sync.OnceFunc(func() {
		close(done)
		work.Wait()
	})
	t.Cleanup(h.stop)
	work.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			serial, err := presented(address)
			h.count++
			if err != nil {
				h.failed = append(h.failed, err)
				continue
			}
			h.shown.Store(serial)
		}
	})
	return h
}

// unharmed fails the test if a handshake has failed.
func (h *handshakes) unharmed(t testing.TB) {
	t.Helper()
	h.stop()
	t.Log(h.count, "handshakes")
	if len(h.failed) > 0 || h.count == 0 {
		t.Errorf("%d of %d handshakes failed: %v", len(h.failed), h.count, h.failed)
	}
}

// A secret is rotated while clients connect all the time. No handshake fails, and each
// new certificate is shown.
func TestSecretsRotate(t *testing.T) {
	for _, w := range append(variants(way{relays: 1}), way{relays: 2, perType: true}) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			m := w.makes()
			has := m.service("a", realenvoy.Backend(t, "a"))
			has.put(cache.Listener, "web", m.secured("web", "web", "cert"))
			has.put(cache.Secret, "cert", newIdentity(t, 1).secret("cert"))
			s := play(t, w, has, "groups.secrets=shared")
			e := s.envoy("envoy")
			e.WaitReady(patience)
			address := listens(t, e, "web")

			load := shakeHands(t, address)
			for serial := int64(2); serial <= int64(often(30, 6)); serial++ {
				next := newIdentity(t, serial)
				s.plane.Change(func(has world) { has.put(cache.Secret, "cert", next.secret("cert")) })
				peer.Eventually(t, patience, func() error { return peer.Is("serial number", load.shown.Load(), serial) })
			}
			load.unharmed(t)
		})
	}
}
