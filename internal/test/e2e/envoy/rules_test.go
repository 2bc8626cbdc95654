package envoy

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/certs/certstest"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// rulesForWorkloads let each workload read its own Secret, and everything that is none.
const rulesForWorkloads = `
rules:
  - identity: "spiffe://e2e/sa/{sa}"
    read:
      - {types: [LDS, RDS, CDS, EDS], names: ["*", "**"]}
      - {types: [SDS], names: ["{sa}-cert"], share: true}
`

// The certificate by which the rules know an Envoy is replaced again and again, and each of its
// streams ends with the certificate that it began with. What it serves goes on, it gets what is new,
// and a listener that asks for a Secret of somebody else has none.
func TestWorkloadCertificateRotates(t *testing.T) {
	for _, w := range variants(way{relays: 1}) {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			realenvoy.Need(t)
			m := w.makes()
			has := m.service("a", realenvoy.Backend(t, "a"))
			has.put(cache.Listener, "web", m.secured("web", "web", "web-cert"))
			has.put(cache.Secret, "web-cert", newIdentity(t, 1).secret("web-cert"))
			has.put(cache.Secret, "db-cert", newIdentity(t, 1000).secret("db-cert"))
			plane := newPlane(t, has)
			plane.Start()

			ca, ofRelay, ofEnvoy := certstest.NewAuthority(t, "the mesh"), t.TempDir(), t.TempDir()
			put := func(dir string, cert, key []byte) {
				certstest.Swap(t, dir, map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca.PEM})
			}
			cert, key := ca.Issue(t, x509.Certificate{})
			put(ofRelay, cert, key)
			const lifetime = 10 * time.Second
			rotate := func() {
				svid := ca.IssueSVID(t, "spiffe://e2e/sa/web", x509.Certificate{NotAfter: time.Now().Add(lifetime)})
				put(ofEnvoy, svid.Cert, svid.Key)
			}
			rotate()
			rules := filepath.Join(t.TempDir(), "rules.yaml")
			if err := os.WriteFile(rules, []byte(rulesForWorkloads), 0o600); err != nil {
				t.Fatal(err)
			}
			r := startRelay(t, "tier-1", plane.addr, append(asks(ofRelay), "authz.rules_file="+rules)...)
			e := realenvoy.Start(t, realenvoy.ADS(realenvoy.Node{ID: "envoy", Cluster: "e2e"}, realenvoy.Source{
				Target: r.addr, SotW: w.sotw,
				TLS: &realenvoy.TLS{CA: filepath.Join(ofEnvoy, "ca.crt"), Follow: realenvoy.WriteSecret(t, ofEnvoy)},
			}), realenvoy.Options{Name: "envoy"})
			e.WaitReady(patience)
			address := listens(t, e, "web")
			// Not at the start: an Envoy serves nothing until its first listeners have their Secrets.
			plane.Change(func(has world) { has.put(cache.Listener, "thief", m.secured("thief", "web", "db-cert")) })
			load := shakeHands(t, address)

			for serial := int64(2); serial <= int64(often(8, 4)); serial++ {
				next := time.After(lifetime / 2)
				rotate()
				s := newIdentity(t, serial).secret("web-cert")
				plane.Change(func(has world) { has.put(cache.Secret, "web-cert", s) })
				peer.Eventually(t, patience, func() error { return peer.Is("serial number", load.shown.Load(), serial) })
				<-next
			}
			peer.Eventually(t, patience, func() error {
				if len(r.log.Lines("certificate_expired")) == 0 {
					return errors.New("no stream ended with its certificate")
				}
				return nil
			})
			load.unharmed(t)
			d, err := e.Dump()
			if err != nil {
				t.Fatal(err)
			}
			if s := d.Secrets["web-cert"]; !strings.Contains(string(s.Body), "certificate_chain") {
				t.Errorf("the Envoy has no Secret of its own: %s", s.Body)
			}
			if s, asked := d.Secrets["db-cert"]; !asked || strings.Contains(string(s.Body), "certificate_chain") {
				t.Errorf("the Envoy has a Secret of somebody else, or did not ask for it: %s", s.Body)
			}
		})
	}
}
