package certs

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// What files may be used with, though it is probably a mistake, or soon will be.
const (
	Expired     Problem = "expired"
	NotYetValid Problem = "not_yet_valid"
	Expiring    Problem = "expiring"  // a third of its life or less is left
	WrongCA     Problem = "wrong_ca"  // signed by another authority than the files name
	WrongUse    Problem = "wrong_use" // not made for this side of a connection
	NoName      Problem = "no_name"   // clients have no name to look for in it
)

// Inspect says what is wrong with files that can be used, as far as they alone tell, at a
// time.
func Inspect(f Files, m *Material, now time.Time) (faults []*Fault) {
	for _, v := range validities(f, m, now) {
		if fault := v.fault(now); fault != nil {
			faults = append(faults, fault)
		}
	}
	return append(faults, mistakes(f, m)...)
}

// validity is for how long a file, or what an agent sent, can be used.
type validity struct {
	role, key, path string
	renew           string // what to do about its end
	cert            *x509.Certificate
}

// The roles of files.
const (
	RoleCert = "cert"
	RoleCA   = "ca"
)

// validities are those of the certificate and of the authorities. Of several authorities
// it is the one that ends next; those that have ended count only if all have, since an
// old one may stay in its file beside the new one.
func validities(f Files, m *Material, now time.Time) (all []validity) {
	cert, ca, renew, authorities := f.Cert, f.CA, "renew it; the relay takes the new files by itself", m.Authorities
	if f.Agent != "" {
		cert, ca, renew = f.Agent, f.Agent, "see why the agent has not renewed it; the relay takes what it sends by itself"
	}
	if m.Domains != nil {
		authorities = lasting(m.Domains)
	}
	if leaf := m.Leaf(); leaf != nil {
		all = append(all, validity{RoleCert, f.CertKey(), cert, renew, leaf})
	}
	if len(authorities) > 0 {
		byEnd := slices.SortedFunc(slices.Values(authorities), func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		next := slices.IndexFunc(byEnd, func(c *x509.Certificate) bool { return !c.NotAfter.Before(now) })
		if next < 0 {
			next = len(byEnd) - 1
		}
		all = append(all, validity{RoleCA, f.CAKey(), ca, renew, byEnd[next]})
	}
	return all
}

// expiringFrom is when a third of a certificate's life is left.
func expiringFrom(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 3)
}

// problem is what a certificate's validity says at a time; empty: nothing.
func problem(c *x509.Certificate, now time.Time) Problem {
	switch {
	case now.After(c.NotAfter):
		return Expired
	case now.Before(c.NotBefore):
		return NotYetValid
	case !now.Before(expiringFrom(c)):
		return Expiring
	}
	return ""
}

func (v validity) fault(now time.Time) *Fault {
	p := problem(v.cert, now)
	msg, hint := "", ""
	switch p {
	case Expired:
		msg, hint = "has expired: it was valid until "+date(v.cert.NotAfter), v.renew
	case NotYetValid:
		msg, hint = "is not valid yet: it begins on "+date(v.cert.NotBefore), "see the clock of this host, and of whoever issued it"
	case Expiring:
		msg, hint = "expires on "+date(v.cert.NotAfter), v.renew
	default:
		return nil
	}
	return &Fault{Key: v.key, Problem: p, Msg: fmt.Sprintf("the certificate of %s in %q %s", subject(v.cert), clip(v.path), msg), Hint: hint}
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// subject is what a certificate is called in a sentence.
func subject(c *x509.Certificate) string {
	if name := nameOf(c); name != "" {
		return strconv.Quote(name)
	}
	return "serial number " + serialOf(c)
}

// nameOf is what a certificate calls itself, or "".
func nameOf(c *x509.Certificate) string {
	switch {
	case spiffeOf(c) != "":
		return spiffeOf(c)
	case c.Subject.CommonName != "":
		return clip(c.Subject.CommonName)
	case len(c.URIs) > 0:
		return clip(c.URIs[0].String())
	case len(c.DNSNames) > 0:
		return clip(c.DNSNames[0])
	}
	return ""
}

// spiffeOf is the SPIFFE ID that a certificate says, or "". The subjects of SVIDs are all
// alike.
func spiffeOf(c *x509.Certificate) string {
	if len(c.URIs) == 1 && c.URIs[0].Scheme == "spiffe" {
		return clip(c.URIs[0].String())
	}
	return ""
}

func serialOf(c *x509.Certificate) string { return clip(c.SerialNumber.Text(16)) }

// mistakes are those that time does not change.
func mistakes(f Files, m *Material) (faults []*Fault) {
	if m.Domains != nil {
		return noBundles(f, m) // the agent answers for the rest
	}
	leaf := m.Leaf()
	if leaf == nil {
		return nil
	}
	fault := func(p Problem, hint, format string, args ...any) {
		faults = append(faults, &Fault{Key: f.CertKey(), Problem: p, Msg: fmt.Sprintf(format, args...), Hint: hint})
	}
	if len(m.Chain) > 1 && !slices.ContainsFunc(m.Chain[1:], func(c *x509.Certificate) bool { return signed(c, leaf) }) {
		fault(WrongCA, "put the certificates of the authorities between it and the root after it", "none of the certificates that follow the one of %s in %q has signed it", subject(leaf), clip(f.Cert))
	}
	if namesake := namesakeOfIssuer(m); namesake != nil {
		fault(WrongCA, "the authority was made again: take its certificate and its key from the same place", "the certificate of %s in %q is signed by another authority than the one of that name, %s, in %s", subject(leaf), clip(f.Cert), subject(namesake), f.CAKey())
	}
	use, purpose := x509.ExtKeyUsageClientAuth, "clients"
	if f.Hop == Downstream {
		use, purpose = x509.ExtKeyUsageServerAuth, "servers"
		if len(leaf.DNSNames)+len(leaf.IPAddresses)+len(leaf.URIs) == 0 {
			fault(NoName, "have it issued with the names that clients call the relay by", "the certificate of %s in %q has no subject alternative name, and clients that look for one refuse it", subject(leaf), clip(f.Cert))
		}
	}
	if len(leaf.ExtKeyUsage) > 0 && !slices.Contains(leaf.ExtKeyUsage, use) && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) {
		fault(WrongUse, "have it issued with the extended key usage for "+purpose, "the certificate of %s in %q is not made for %s", subject(leaf), clip(f.Cert), purpose)
	}
	return faults
}

// namesakeOfIssuer is an authority that is called as whoever signed the certificate, and
// is not it: nobody who knows the one accepts what the other has signed. An authority of
// another name is no mistake, since the peer's need not be ours.
func namesakeOfIssuer(m *Material) *x509.Certificate {
	last := m.Leaf()
	for range m.Chain { // to the end of what the file has
		i := slices.IndexFunc(m.Chain, func(c *x509.Certificate) bool { return c != last && signed(c, last) })
		if i < 0 {
			break
		}
		last = m.Chain[i]
	}
	var namesake *x509.Certificate
	for _, c := range m.Authorities {
		switch {
		case c.Equal(last) || signed(c, last):
			return nil
		case bytes.Equal(c.RawSubject, last.RawIssuer):
			namesake = c
		}
	}
	return namesake
}

// signed: one certificate is by the authority of the other.
func signed(by, c *x509.Certificate) bool {
	return bytes.Equal(by.RawSubject, c.RawIssuer) && by.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil
}
