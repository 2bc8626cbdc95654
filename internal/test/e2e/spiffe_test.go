package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/certs/certstest"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// spiffe is a Workload API for the relay, which is of the trust domain one.test. That
// federates with two.test and three.test; the relay serves clients of one.test and two.test.
type spiffe struct {
	t               *testing.T
	one, two, three *certstest.Authority
	agent           *certstest.Agent
	serial          int64
}

const planeID, relayID = "spiffe://one.test/control-plane", "spiffe://one.test/relay"

func newSPIFFE(t *testing.T) *spiffe {
	t.Helper()
	dir, err := os.MkdirTemp("", "spiffe") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &spiffe{t: t, agent: certstest.NewAgent(t, dir)}
	// SPIRE's authorities have all the same subject.
	s.one, s.two, s.three = certstest.NewAuthority(t, "SPIFFE"), certstest.NewAuthority(t, "SPIFFE"), certstest.NewAuthority(t, "SPIFFE")
	return s
}

// give gives the relay another SVID, and the authorities that there are.
func (s *spiffe) give(c x509.Certificate) {
	s.t.Helper()
	s.serial++
	c.SerialNumber = big.NewInt(s.serial)
	s.agent.Give(s.one.IssueSVID(s.t, relayID, c), []*certstest.Authority{s.one},
		map[string][]*certstest.Authority{"two.test": {s.two}, "three.test": {s.three}})
}

// sets has both hops use the agent.
func (s *spiffe) sets(more ...string) []string {
	return append([]string{
		fmt.Sprintf("upstream.tls.spiffe={workload_api: %q, trust_domains: [one.test, two.test], server_id: %q}", s.agent.Address(), planeID),
		fmt.Sprintf("downstream.tls.spiffe={workload_api: %q, trust_domains: [one.test, two.test]}", s.agent.Address()),
	}, append(more, quickBackoff...)...)
}

// plane are the credentials of a control plane, which notes the certificate that it is shown.
func (s *spiffe) plane(svid certstest.SVID, shown *atomic.Int64) grpc.ServerOption {
	return grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pairOf(s.t, svid)}, ClientCAs: s.one.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
		VerifyConnection: func(c tls.ConnectionState) error {
			shown.Store(c.PeerCertificates[0].SerialNumber.Int64())
			return nil
		},
	}))
}

func pairOf(t *testing.T, svid certstest.SVID) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(svid.Cert, svid.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// shows are the credentials of a client that shows an SVID, whatever the relay asks for, or
// none, and notes the certificate that it is shown.
func shows(t *testing.T, svid *certstest.SVID, shown *atomic.Int64) *tls.Config {
	t.Helper()
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, VerifyConnection: func(c tls.ConnectionState) error {
		if shown != nil {
			shown.Store(c.PeerCertificates[0].SerialNumber.Int64())
		}
		return nil
	}}
	if svid != nil {
		pair := pairOf(t, *svid)
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return c
}

func with(c *tls.Config) grpc.DialOption { return grpc.WithTransportCredentials(credentials.NewTLS(c)) }

// Both hops have their certificates from an agent: clients of the trust domains that are
// listed are served, and known by their SPIFFE IDs. Who is of another one is refused, and so
// is whoever has a certificate that an authority of one trust domain has signed for another
// one's identity.
func TestSPIFFE(t *testing.T) {
	t.Parallel()
	s := newSPIFFE(t)
	s.give(x509.Certificate{})
	s.agent.Start(t)
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	var shown atomic.Int64
	cp := startControlPlane(t, w.Mux(), s.plane(s.one.IssueSVID(t, planeID, x509.Certificate{}), &shown))
	var counted tally
	r := startRelayWith(t, relay.Options{Certificates: &counted}, cp.addr, s.sets("groups.key=[identity]")...)
	eventually(t, patience, func() error { return ready(r.Relay) })
	alice, bob := s.one.IssueSVID(t, "spiffe://one.test/alice", x509.Certificate{}), s.two.IssueSVID(t, "spiffe://two.test/bob", x509.Certificate{})
	var clients []*deltaClient
	for _, svid := range []certstest.SVID{alice, bob} {
		c := openDelta(t, r.addr, "node", with(shows(t, &svid, nil)))
		c.Wildcard(cache.Cluster)
		clients = append(clients, c)
	}
	eventually(t, patience, func() error {
		return first(clients[0].Has(cache.Cluster, "a-cluster"), clients[1].Has(cache.Cluster, "a-cluster"))
	})
	var identities []string
	for _, c := range r.Clients() {
		identities = append(identities, c.Identity)
	}
	slices.Sort(identities)
	if err := first(is("identities", fmt.Sprint(identities), fmt.Sprint([]string{alice.ID, bob.ID})), is("groups upstream", cp.Open(), 2), counted.none()); err != nil {
		t.Error(err)
	}
	if len(r.Certificates()) != 4 || r.Certificates()[0].Stale {
		t.Errorf("certificates %+v, want one and an authority for each hop", r.Certificates())
	}
}

// Whom the relay refuses, where an agent gives the authorities, and what the log says of it.
func TestSPIFFERefusesClients(t *testing.T) {
	t.Parallel()
	s := newSPIFFE(t)
	s.give(x509.Certificate{})
	s.agent.Start(t)
	issue := func(by *certstest.Authority, id string, c x509.Certificate) *certstest.SVID {
		svid := by.IssueSVID(t, id, c)
		return &svid
	}
	plain := func(c x509.Certificate) *certstest.SVID {
		cert, key := s.one.Issue(t, c)
		return &certstest.SVID{Cert: cert, Key: key}
	}
	uri := func(text string) *url.URL { u, _ := url.Parse(text); return u }
	const foreign = "its certificate is not signed by its own trust domain, or that is not among downstream.tls.spiffe.trust_domains"
	for name, tt := range map[string]struct {
		svid               *certstest.SVID
		reason, says, more string
	}{
		"a trust domain that is not listed":      {issue(s.three, "spiffe://three.test/alice", x509.Certificate{}), "unknown_ca", foreign, "subject=spiffe://three.test/alice"},
		"one that nobody federates with":         {issue(certstest.NewAuthority(t, "SPIFFE"), "spiffe://four.test/alice", x509.Certificate{}), "unknown_ca", foreign, "subject=spiffe://four.test/alice"},
		"one.test as two.test has it":            {issue(s.two, "spiffe://one.test/alice", x509.Certificate{}), "unknown_ca", foreign, "subject=spiffe://one.test/alice"},
		"two.test as one.test has it":            {issue(s.one, "spiffe://two.test/bob", x509.Certificate{}), "unknown_ca", foreign, "subject=spiffe://two.test/bob"},
		"three.test as one.test has it":          {issue(s.one, "spiffe://three.test/alice", x509.Certificate{}), "unknown_ca", foreign, "spiffe://three.test/alice is of none of the trust domains"},
		"no certificate":                         {nil, "no_certificate", "it shows no certificate, and downstream.tls.spiffe.trust_domains asks for one", "subject="},
		"an SVID that has expired":               {issue(s.one, "spiffe://one.test/alice", x509.Certificate{NotAfter: time.Now().Add(-time.Minute)}), "expired", "its certificate has expired", "subject=spiffe://one.test/alice"},
		"a certificate that is no SVID":          {plain(x509.Certificate{DNSNames: []string{"one.test"}}), "other", "the TLS handshake failed", "no URI SAN"},
		"one with two SPIFFE IDs":                {plain(x509.Certificate{URIs: []*url.URL{uri("spiffe://one.test/a"), uri("spiffe://one.test/b")}}), "other", "the TLS handshake failed", "more than one URI SAN"},
		"one whose SPIFFE ID is not well-formed": {plain(x509.Certificate{URIs: []*url.URL{uri("spiffe://one.test/a//b")}}), "other", "the TLS handshake failed", "empty segments"},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(name+", "+tls.VersionName(version), func(t *testing.T) {
				t.Parallel()
				var counted tally
				r := startRelayWith(t, relay.Options{Certificates: &counted}, "127.0.0.1:1", s.sets()...)
				eventually(t, patience, func() error { return ready(r.Relay) })
				c := shows(t, tt.svid, nil)
				c.MaxVersion = version
				if code := refusedWith(t, r.addr, credentials.NewTLS(c)); code != codes.Unavailable {
					t.Errorf("the client is told %v", code)
				}
				eventually(t, patience, func() error {
					if len(r.log.Lines("level=WARN", "a client could not connect: "+tt.says, "reason="+tt.reason, tt.more)) == 0 {
						return fmt.Errorf("the log does not say %q and %q", tt.says, tt.more)
					}
					return counted.only("downstream " + tt.reason)
				})
				if err := is("clients", r.Count(), 0); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Which control planes the relay refuses, where an agent gives the authorities.
func TestSPIFFERefusesControlPlanes(t *testing.T) {
	t.Parallel()
	s := newSPIFFE(t)
	s.give(x509.Certificate{})
	s.agent.Start(t)
	cert, key := s.one.Issue(t, x509.Certificate{})
	for name, tt := range map[string]struct {
		svid         certstest.SVID
		reason, says string
	}{
		"another server":                    {s.one.IssueSVID(t, "spiffe://one.test/other", x509.Certificate{}), "wrong_name", "is another server than upstream.tls.spiffe.server_id says"},
		"a trust domain that is not listed": {s.three.IssueSVID(t, "spiffe://three.test/control-plane", x509.Certificate{}), "unknown_ca", "of a trust domain that is not among upstream.tls.spiffe.trust_domains"},
		"the server as two.test has it":     {s.two.IssueSVID(t, planeID, x509.Certificate{}), "unknown_ca", "has a certificate that its own trust domain has not signed"},
		"one that has expired":              {s.one.IssueSVID(t, planeID, x509.Certificate{NotAfter: time.Now().Add(-time.Minute)}), "expired", "has a certificate that has expired"},
		"no SVID":                           {certstest.SVID{Cert: cert, Key: key}, "other", "has a certificate that is no X509-SVID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cp := startControlPlane(t, newLinear(t).Mux(), s.plane(tt.svid, new(atomic.Int64)))
			var counted tally
			r := startRelayWith(t, relay.Options{Certificates: &counted}, cp.addr, s.sets("downstream.ready_types=[CDS]")...)
			eventually(t, patience, func() error {
				if len(r.log.Lines("cannot reach the control plane", tt.says)) == 0 {
					return fmt.Errorf("the log does not say %q", tt.says)
				}
				return counted.only("upstream " + tt.reason)
			})
			if err := is("streams upstream", cp.Open(), 0); err != nil {
				t.Error(err)
			}
		})
	}
}

// What the agent sends is used by the next handshake, on both hops, and streams that are open
// go on. A client that resumes a session is judged by the trust domains of now.
func TestSPIFFERotation(t *testing.T) {
	t.Parallel()
	s := newSPIFFE(t)
	s.give(x509.Certificate{})
	s.agent.Start(t)
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	var toPlane, toClient atomic.Int64
	cp := startControlPlane(t, w.Mux(), s.plane(s.one.IssueSVID(t, planeID, x509.Certificate{}), &toPlane))
	var counted tally
	r := startRelayWith(t, relay.Options{Certificates: &counted}, cp.addr, s.sets()...)
	eventually(t, patience, func() error { return ready(r.Relay) })
	bob := s.two.IssueSVID(t, "spiffe://two.test/bob", x509.Certificate{})
	creds := shows(t, &bob, &toClient)
	creds.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	a := openDelta(t, r.addr, "a", with(creds))
	a.Wildcard(cache.Cluster)
	eventually(t, patience, func() error {
		return first(a.Has(cache.Cluster, "a-cluster"), is("serial number to the client", toClient.Load(), 1), is("to the control plane", toPlane.Load(), 1))
	})

	// Another SVID, and an authority of one.test beside the one before.
	s.serial++
	next := certstest.NewAuthority(t, "SPIFFE")
	s.agent.Give(next.IssueSVID(t, relayID, x509.Certificate{SerialNumber: big.NewInt(s.serial)}), []*certstest.Authority{s.one, next}, nil)
	eventually(t, patience, func() error {
		if len(r.log.Lines("certificates reloaded", "changed=\"certificate and authorities\"")) < 4 { // the first, and this one, of each hop
			return errors.New("the second SVID is not used")
		}
		return nil
	})
	alice := next.IssueSVID(t, "spiffe://one.test/alice", x509.Certificate{})
	b := openDelta(t, r.addr, "b", with(shows(t, &alice, &toClient)))
	b.Wildcard(cache.Cluster)
	eventually(t, patience, func() error {
		return first(b.Has(cache.Cluster, "a-cluster"), is("serial number to the client", toClient.Load(), 2))
	})
	// The agent has no bundle of two.test any more.
	if code := refusedWith(t, r.addr, credentials.NewTLS(creds)); code != codes.Unavailable {
		t.Errorf("a client of a trust domain without a bundle is told %v", code)
	}
	w.service("b", "127.0.0.1:1")
	eventually(t, patience, func() error {
		return first(a.Has(cache.Cluster, "a-cluster", "b-cluster"), b.Has(cache.Cluster, "a-cluster", "b-cluster"))
	})
	if err := first(a.End(), a.Sound(), b.Sound(), is("serial number to the control plane", toPlane.Load(), 1)); err != nil {
		t.Error(err)
	}
	s.one = next // whom the control plane trusts when it comes back
	cp.Stop()
	cp.opts = []grpc.ServerOption{s.plane(next.IssueSVID(t, planeID, x509.Certificate{}), &toPlane)}
	w.service("c", "127.0.0.1:1")
	cp.Start()
	eventually(t, patience, func() error {
		return first(a.Has(cache.Cluster, "a-cluster", "b-cluster", "c-cluster"), is("serial number to the control plane", toPlane.Load(), 2))
	})
}

// A relay starts without its agent, says so once, is not ready, and connects to nobody. When
// the agent is there it is whole. When the agent goes away again nothing happens, until the
// SVID expires.
func TestSPIFFEAgentAway(t *testing.T) {
	t.Parallel()
	s := newSPIFFE(t)
	w := newLinear(t)
	w.service("a", "127.0.0.1:1")
	cp := startControlPlane(t, w.Mux(), s.plane(s.one.IssueSVID(t, planeID, x509.Certificate{}), new(atomic.Int64)))
	var counted tally
	r := startRelayWith(t, relay.Options{Certificates: &counted}, cp.addr, s.sets("downstream.ready_types=[CDS]")...)
	alice := s.one.IssueSVID(t, "spiffe://one.test/alice", x509.Certificate{})
	creds := with(shows(t, &alice, nil))
	eventually(t, patience, func() error {
		if len(r.log.Lines("level=WARN", "the SPIFFE agent has sent no certificate yet", "agent="+s.agent.Address(), "no such file")) == 0 {
			return errors.New("the log does not say that the agent is away")
		}
		return nil
	})
	if code := refusedWith(t, r.addr, credentials.NewTLS(shows(t, &alice, nil))); code != codes.Unavailable {
		t.Errorf("a client is told %v", code)
	}
	eventually(t, patience, func() error {
		if len(r.log.Lines("a client could not connect: the relay has no certificate yet; see the agent of downstream.tls.spiffe.workload_api", "reason=no_svid", s.agent.Address())) == 0 ||
			len(r.log.Lines("cannot reach the control plane", "since the relay has no certificate: see whether the agent of upstream.tls.spiffe.workload_api runs")) == 0 {
			return errors.New("the log does not say why there are no connections")
		}
		return first(counted.some("downstream no_svid"), counted.some("upstream no_svid"))
	})
	if ok, why := r.Ready(); ok || !strings.Contains(why, "downstream.tls.spiffe.workload_api: the agent at "+s.agent.Address()+" has sent no certificate yet") {
		t.Errorf("without an SVID it is ready: %v, %s", ok, why)
	}

	s.give(x509.Certificate{})
	s.agent.Start(t)
	eventually(t, patience, func() error { return ready(r.Relay) })
	a := openDelta(t, r.addr, "a", creds)
	a.Wildcard(cache.Cluster)
	eventually(t, patience, func() error { return a.Has(cache.Cluster, "a-cluster") })
	if n := len(r.log.Lines("level=WARN", "the SPIFFE agent")); n != 1 {
		t.Errorf("%d warnings of the agent, want one", n)
	}

	end := time.Now().Add(3 * time.Second)
	s.give(x509.Certificate{NotAfter: end})
	eventually(t, patience, func() error {
		return is("SVIDs that are used", len(r.log.Lines("certificates reloaded", "section=downstream.tls", "serial=2")), 1)
	})
	s.agent.Stop()
	eventually(t, patience, func() error {
		if len(r.log.Lines("level=WARN", "the SPIFFE agent does not answer; what it sent last stays in use until it expires", "agent="+s.agent.Address())) != 1 {
			return errors.New("the log does not say once that the agent is away")
		}
		return nil
	})
	stale := slices.ContainsFunc(r.Certificates(), func(c certs.State) bool { return c.Stale })
	if time.Now().Before(end.Add(-time.Second)) { // else this machine is too slow for it
		b := openDelta(t, r.addr, "b", creds)
		b.Wildcard(cache.Cluster)
		eventually(t, patience, func() error { return b.Has(cache.Cluster, "a-cluster") })
		if ok, why := r.Ready(); !ok || !stale {
			t.Errorf("with the last SVID it is ready: %v, %s; certificates are stale: %v", ok, why, stale)
		}
	}
	eventually(t, patience, func() error {
		if ok, why := r.Ready(); ok || !strings.Contains(why, "the certificate of downstream.tls.spiffe.workload_api has expired") {
			return fmt.Errorf("ready: %v, %s", ok, why)
		}
		return nil
	})
	s.give(x509.Certificate{})
	s.agent.Start(t)
	eventually(t, patience, func() error {
		if len(r.log.Lines("level=INFO", "the SPIFFE agent answers again")) != 2 {
			return errors.New("the log does not say that the agent answers again")
		}
		return ready(r.Relay)
	})
	if err := first(a.End(), a.Sound()); err != nil {
		t.Error(err)
	}
}

// Other trust domains are taken over without a restart, and what the agent has sent is known
// for them at once.
func TestSPIFFEReconfigured(t *testing.T) {
	t.Parallel()
	s := newSPIFFE(t)
	s.give(x509.Certificate{})
	s.agent.Start(t)
	var counted tally
	r := startRelayWith(t, relay.Options{Certificates: &counted}, "127.0.0.1:1", s.sets()...)
	eventually(t, patience, func() error { return ready(r.Relay) })
	mallory := s.three.IssueSVID(t, "spiffe://three.test/mallory", x509.Certificate{})
	if code := refusedWith(t, r.addr, credentials.NewTLS(shows(t, &mallory, nil))); code != codes.Unavailable {
		t.Errorf("a client of a trust domain that is not listed is told %v", code)
	}
	next := *r.Config()
	next.Downstream.TLS.SPIFFE.TrustDomains = []string{"three.test"}
	if err := r.Reconfigure(&next); err != nil {
		t.Fatal(err)
	}
	if err := ready(r.Relay); err != nil { // what the agent has sent is known
		t.Error(err)
	}
	c := openDelta(t, r.addr, "c", with(shows(t, &mallory, nil)))
	c.Subscribe(cache.Cluster, "c")
	eventually(t, patience, func() error { return is("clients", r.Count(), 1) })
	if err := c.End(); err != nil {
		t.Error(err)
	}
}

func ready(r *relay.Relay) error {
	if ok, why := r.Ready(); !ok {
		return fmt.Errorf("it is not ready: %s", why)
	}
	return nil
}
