package certs

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
)

// NoBundle: an agent has no authorities of a trust domain.
const NoBundle Problem = "no_bundle"

// svidMaterial is what an agent has sent, as far as a section uses it: the default SVID, and
// the authorities of its trust domains.
func svidMaterial(c *workloadapi.X509Context, f Files) *Material {
	svid, sum := c.DefaultSVID(), sha256.New()
	m := &Material{
		Pair: &tls.Certificate{PrivateKey: svid.PrivateKey, Leaf: svid.Certificates[0]}, Chain: svid.Certificates,
		Pool: x509.NewCertPool(), Domains: x509bundle.NewSet(),
	}
	for _, cert := range svid.Certificates {
		m.Pair.Certificate = append(m.Pair.Certificate, cert.Raw)
		sum.Write(cert.Raw)
	}
	for _, name := range f.TrustDomains {
		bundle, err := c.Bundles.GetX509BundleForTrustDomain(domain(name))
		if err != nil {
			continue // mistakes has it
		}
		m.Domains.Add(bundle)
		fmt.Fprintf(sum, "%s\n", name)
		for _, authority := range bundle.X509Authorities() {
			m.Pool.AddCert(authority)
			m.Authorities = append(m.Authorities, authority)
			sum.Write(authority.Raw)
		}
	}
	sum.Sum(m.sum[:0])
	return m
}

// domain is a trust domain whose name has been checked; else one that nothing is of.
func domain(name string) spiffeid.TrustDomain {
	td, _ := spiffeid.TrustDomainFromString(name)
	return td
}

// Fetch asks an agent once for what Follow would keep up to date.
func Fetch(ctx context.Context, f Files) (*Material, error) {
	c, err := workloadapi.FetchX509Context(ctx, workloadapi.WithAddr(f.Agent))
	if err != nil {
		return nil, err
	}
	return svidMaterial(c, f), nil
}

// VerifySVID is for [tls.Config.VerifyConnection], where material comes from an agent. The
// peer's certificate must be an X509-SVID, signed by an authority of its own trust domain:
// Pool has those of all, and none of them may vouch for another domain's identities. It must
// be for the SPIFFE ID only, unless that is empty.
func (m *Material) VerifySVID(only string) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		if err := m.verify(s.PeerCertificates, only); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
		}
		return nil
	}
}

func (m *Material) verify(chain []*x509.Certificate, only string) error {
	id, _, err := x509svid.Verify(chain, m.Domains)
	switch {
	case err != nil && !id.IsZero() && !m.Domains.Has(id.TrustDomain()):
		return fmt.Errorf("%s is of none of the trust domains: %w", id, x509.UnknownAuthorityError{Cert: chain[0]})
	case err != nil && !id.IsZero():
		return fmt.Errorf("%s: %w", id, err)
	case err != nil:
		return err
	case only != "" && id.String() != only:
		return &otherID{id.String(), only}
	}
	return nil
}

// otherID: the peer is another one than it should be.
type otherID struct{ is, want string }

// Error implements error.
func (e *otherID) Error() string {
	return fmt.Sprintf("the SVID is for %s, and not for %s", e.is, e.want)
}

// lasting are the authorities that end last, each of its trust domain. An authority that is
// replaced stays in the bundle beside the new one until it ends.
func lasting(domains *x509bundle.Set) (all []*x509.Certificate) {
	for _, bundle := range domains.Bundles() {
		var last *x509.Certificate
		for _, c := range bundle.X509Authorities() {
			if last == nil || c.NotAfter.After(last.NotAfter) {
				last = c
			}
		}
		if last != nil {
			all = append(all, last)
		}
	}
	return all
}

// noBundles are the trust domains of a section of which the agent has no authorities.
func noBundles(f Files, m *Material) (faults []*Fault) {
	for _, name := range f.TrustDomains {
		if !m.Domains.Has(domain(name)) {
			faults = append(faults, &Fault{
				Key: f.CAKey(), Problem: NoBundle, Msg: fmt.Sprintf("the agent at %s has no bundle of %q, so that its peers are refused", clip(f.Agent), clip(name)),
				Hint: "see the name, and whether the agent's trust domain federates with it, and the relay's entry says so",
			})
		}
	}
	return faults
}
