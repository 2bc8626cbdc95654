package envoy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/credentials"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/certs/certstest"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// The authority of everybody is replaced by another one at once, as Kubernetes does it, and
// the control plane lets nobody in who has the old certificates. The relay is not touched:
// an Envoy that is there goes on to get what is new, one that comes with the new
// certificates is let in, and no request fails.
func TestCertificatesRotate(t *testing.T) {
	for _, w := range variants(way{relays: 1}) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			realenvoy.Need(t)
			m := w.makes()
			backends := map[string]string{"a": realenvoy.Backend(t, "a"), "b": realenvoy.Backend(t, "b")}
			plane := newPlane(t, m.service("a", backends["a"]))
			var demands atomic.Pointer[tls.Config]
			plane.credentials = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				return demands.Load(), nil
			}})
			ofRelay, ofEnvoys := t.TempDir(), t.TempDir()
			rotations := 0
			rotate := func() {
				rotations++
				ca := certstest.NewAuthority(t, fmt.Sprint("authority ", rotations))
				issue := func() (cert, key []byte) { return ca.Issue(t, x509.Certificate{}) }
				pair, err := tls.X509KeyPair(issue())
				if err != nil {
					t.Fatal(err)
				}
				demands.Store(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert})
				for _, dir := range []string{ofRelay, ofEnvoys} {
					cert, key := issue()
					certstest.Swap(t, dir, map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca.PEM})
				}
			}
			rotate()
			plane.Start()
			in := func(dir, file string) string { return filepath.Join(dir, file) }
			r := startRelay(t, "tier-1", plane.addr, append(asks(ofRelay),
				"upstream.tls.ca="+in(ofRelay, "ca.crt"), "upstream.tls.cert="+in(ofRelay, "tls.crt"), "upstream.tls.key="+in(ofRelay, "tls.key"))...)
			start := func(name string) *realenvoy.Envoy {
				t.Helper()
				e := realenvoy.Start(t, realenvoy.ADS(realenvoy.Node{ID: name, Cluster: "e2e"}, realenvoy.Source{
					Target: r.addr, SotW: w.sotw,
					TLS: &realenvoy.TLS{CA: in(ofEnvoys, "ca.crt"), Cert: in(ofEnvoys, "tls.crt"), Key: in(ofEnvoys, "tls.key")},
				}), realenvoy.Options{Name: name})
				e.WaitReady(patience)
				return e
			}
			e := start("envoy")
			address := listens(t, e, "web")
			peer.Eventually(t, patience, func() error { return answers(address, "a") })
			load := realenvoy.Drive(t, address, rate())

			for round := range often(10, 2) {
				rotate()
				peer.Eventually(t, patience, func() error {
					if n, want := len(r.log.Lines("certificates reloaded")), 2*(round+1); n < want {
						return fmt.Errorf("%d sections were reloaded, not %d", n, want)
					}
					return nil
				})
				plane.Stop()
				plane.Start()
				answer := []string{"b", "a"}[round%2]
				plane.Change(func(has world) { has.put(cache.Endpoint, "a", endpoints("a", backends[answer])) })
				peer.Eventually(t, patience, func() error { return peer.Is("answer", load.Last(), answer) })
				late := listens(t, start(fmt.Sprint("late-", round)), "web")
				peer.Eventually(t, patience, func() error { return answers(late, answer) })
			}
			unharmed(t, e, load)
		})
	}
}
