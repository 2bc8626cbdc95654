package preflight

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"os"
	"time"

	"github.com/xds-relay/xds-relay/internal/certs"
)

// certificates checks all that the configuration names: what relay.Check leaves to whoever
// looks at a clock, and whether a chain is one.
func (k *checker) certificates(ctx context.Context) {
	for _, e := range k.config.Upstream.AllEntries() {
		section := e.Section + ".tls"
		k.authorities(section+".ca", e.TLS.CA)
		k.chain(section+".cert", e.TLS.Cert)
		k.agent(ctx, e.TLS.Files(e.Section, e.Address))
	}
	k.agent(ctx, k.config.Downstream.TLS.Files())
	k.chain("downstream.tls.cert", k.config.Downstream.TLS.Cert)
	k.authorities("downstream.tls.client_ca", k.config.Downstream.TLS.ClientCA)
}

// agent checks what a SPIFFE agent sends for a section, if the section names one.
func (k *checker) agent(ctx context.Context, f certs.Files) {
	if f.Agent == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, k.o.Within)
	defer cancel()
	m, err := certs.Fetch(ctx, f)
	if err != nil {
		k.fail(f.CertKey(), "see whether the agent runs, whether this user may use its socket, and whether it has an entry for the relay", "%s: %v", f.Agent, err)
		return
	}
	faults := certs.Inspect(f, m, k.o.Now())
	for _, fault := range faults {
		k.note(fault.Key, fault.Hint, "%s", fault.Msg)
	}
	if len(faults) == 0 {
		k.ok(f.CertKey(), "%s: %s, until %s", f.Agent, m.Leaf().URIs[0], day(m.Leaf().NotAfter))
	}
}

// chain checks a certificate and those that follow it, each of which signs the one before.
func (k *checker) chain(key, path string) {
	if path == "" {
		return
	}
	all, err := read(path)
	if err != nil || len(all) == 0 {
		k.fail(key, "check the file", "%s cannot be read as certificates: %v", path, err)
		return
	}
	for i, cert := range all[:len(all)-1] {
		if err := cert.CheckSignatureFrom(all[i+1]); err != nil {
			k.fail(key, "write the certificate first, and after each one the one that signed it",
				"%s: certificate %d (%s) is not signed by the next one (%s): %v", path, i+1, cert.Subject, all[i+1].Subject, err)
			return
		}
	}
	if k.age(key, path, all) {
		k.ok(key, "%s: %s, until %s", path, all[0].Subject, day(all[0].NotAfter))
	}
}

// authorities checks the roots that a peer must chain to.
func (k *checker) authorities(key, path string) {
	if path == "" {
		return
	}
	all, err := read(path)
	if err != nil || len(all) == 0 {
		k.fail(key, "check the file", "%s cannot be read as certificates: %v", path, err)
		return
	}
	if k.age(key, path, all) {
		k.ok(key, "%s: %d, the first is %s", path, len(all), all[0].Subject)
	}
}

// age reports whether there is nothing to say of when certificates are valid.
func (k *checker) age(key, path string, all []*x509.Certificate) bool {
	now := k.o.Now()
	for _, cert := range all {
		switch {
		case now.After(cert.NotAfter):
			k.fail(key, "renew it, or set the clock of this host", "%s: %s has expired, on %s", path, cert.Subject, day(cert.NotAfter))
		case now.Before(cert.NotBefore):
			k.fail(key, "set the clock of this host, or wait", "%s: %s is not valid before %s", path, cert.Subject, day(cert.NotBefore))
		case cert.NotAfter.Sub(now) < k.o.Soon:
			k.note(key, "renew it", "%s: %s expires on %s", path, cert.Subject, day(cert.NotAfter))
		default:
			continue
		}
		return false
	}
	return true
}

func day(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func read(path string) (all []*x509.Certificate, err error) {
	data, err := os.ReadFile(path)
	for err == nil {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		var cert *x509.Certificate
		if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, cert)
		}
	}
	return all, err
}
