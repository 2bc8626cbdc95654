package config

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/internal/certs"
)

// minVersionKey is the shortest HMAC key accepted; versions show 128 bits.
const minVersionKey = 16

// snapshotKey is the length of an AES-256 key.
const snapshotKey = 32

// CheckFiles checks that the files the configuration names can be read and
// hold what they should. [Config.Validate] leaves them alone, because a
// configuration may be validated on a host that does not have them.
// Expiry makes no file unusable; see [Config.FileNotes].
func (c *Config) CheckFiles() error {
	v := &validator{c: c}
	for _, f := range c.CertificateFiles() {
		_, err := certs.Load(f)
		for _, fault := range certs.Faults(err) {
			v.fault(fault)
		}
	}
	if data, ok := v.file("version_key_file", c.VersionKeyFile); ok && len(data) < minVersionKey {
		v.fail("version_key_file", "for example: head -c 32 /dev/urandom", "%q has %d bytes; a key has at least %d", clip(c.VersionKeyFile), len(data), minVersionKey)
	}
	if data, ok := v.file("cache.snapshot.key_file", c.Cache.Snapshot.KeyFile); ok && len(data) != snapshotKey {
		v.fail("cache.snapshot.key_file", "for example: head -c 32 /dev/urandom", "%q has %d bytes; a key has exactly %d", clip(c.Cache.Snapshot.KeyFile), len(data), snapshotKey)
	}
	return join(v.errs)
}

// file reads a file, if one is named.
func (v *validator) file(key, path string) ([]byte, bool) {
	if path == "" {
		return nil, false
	}
	data, err := readNamed(path)
	if err != nil {
		v.fail(key, "check the path and the permissions", "cannot read %q: %s", clip(path), osReason(err))
		v.errs[len(v.errs)-1].cause = err
		return nil, false
	}
	return data, true
}

// fault takes over what is wrong with a file of certificates.
func (v *validator) fault(f *certs.Fault) {
	v.fail(f.Key, f.Hint, "%s", f.Msg)
	v.errs[len(v.errs)-1].cause = f.Cause
}

// CertificateFiles are the certificates, keys and authorities that are used: those of the
// entries of upstream in their order, then those of downstream, and those towards the
// collector of traces. A section that names
// no file is left out.
func (c *Config) CertificateFiles() (all []certs.Files) {
	for _, e := range c.Upstream.AllEntries() {
		all = append(all, e.TLS.Files(e.Section, e.Address))
	}
	all = append(all, c.Downstream.TLS.Files())
	all = append(all, c.Tracing.TLS.Files(c.Tracing.OTLPEndpoint))
	return slices.DeleteFunc(all, func(f certs.Files) bool { return f.Cert == "" && f.Key == "" && f.CA == "" })
}

// Files are those of an Entry.
func (t ClientTLS) Files(section, address string) certs.Files {
	return certs.Files{Section: section + ".tls", Hop: certs.Upstream, Address: address, Cert: t.Cert, Key: t.Key, CA: t.CA, Agent: t.SPIFFE.WorkloadAPI, TrustDomains: t.SPIFFE.TrustDomains}
}

// Files are those that secure the listeners.
func (t ServerTLS) Files() certs.Files {
	return certs.Files{Section: "downstream.tls", Hop: certs.Downstream, Cert: t.Cert, Key: t.Key, CA: t.ClientCA, Agent: t.SPIFFE.WorkloadAPI, TrustDomains: t.SPIFFE.TrustDomains}
}

// FileNotes are what files say that can be used, and that is a mistake all the same, or
// soon will be: a certificate that has expired, or is about to. The relay starts with it,
// since one that serves what it has is better than none.
func (c *Config) FileNotes(now time.Time) []*Error {
	v := &validator{c: c}
	for _, f := range c.CertificateFiles() {
		m, err := certs.Load(f)
		if err != nil {
			continue // which is for CheckFiles to say
		}
		for _, fault := range certs.Inspect(f, m, now) {
			v.fault(fault)
		}
	}
	return v.errs
}
