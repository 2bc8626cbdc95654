package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// minVersionKey is the shortest HMAC key accepted; versions show 128 bits.
const minVersionKey = 16

// snapshotKey is the length of an AES-256 key.
const snapshotKey = 32

// CheckFiles checks that the files the configuration names can be read and
// hold what they should. [Config.Validate] leaves them alone, because a
// configuration may be validated on a host that does not have them.
// Expiry is not checked here: it depends on when somebody looks.
func (c *Config) CheckFiles() error {
	v := &validator{c: c}
	up, down := &c.Upstream.TLS, &c.Downstream.TLS
	v.certificates("upstream.tls.ca", up.CA)
	v.keyPair("upstream.tls", up.Cert, up.Key)
	for i := range c.Upstream.Fallbacks {
		section := fmt.Sprintf("upstream.fallbacks[%d].tls", i)
		tls := &c.Upstream.Fallbacks[i].TLS
		v.certificates(section+".ca", tls.CA)
		v.keyPair(section, tls.Cert, tls.Key)
	}
	v.keyPair("downstream.tls", down.Cert, down.Key)
	v.certificates("downstream.tls.client_ca", down.ClientCA)
	v.certificates("tracing.tls.ca", c.Tracing.TLS.CA)
	v.keyPair("tracing.tls", c.Tracing.TLS.Cert, c.Tracing.TLS.Key)
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
	data, err := readFile(path)
	if err != nil {
		v.fail(key, "check the path and the permissions", "cannot read %q: %s", clip(path), osReason(err))
		v.errs[len(v.errs)-1].cause = err
		return nil, false
	}
	return data, true
}

// certificates checks a PEM file of one or more certificates. The standard
// library's pool skips what it cannot parse, and would then trust less than
// the file says.
func (v *validator) certificates(key, path string) {
	data, ok := v.file(key, path)
	if !ok {
		return
	}
	found, err := parseCertificates(data)
	switch {
	case err != nil:
		v.fail(key, "", "certificate %d in %q: %v", found+1, clip(path), err)
	case found == 0:
		v.fail(key, "it should contain -----BEGIN CERTIFICATE-----", "%q has no certificate in PEM form", clip(path))
	}
}

func parseCertificates(data []byte) (found int, err error) {
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			return found, nil
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return found, err
		}
		found++
	}
}

// keyPair checks that a certificate and a key can be read and belong together.
func (v *validator) keyPair(section, certPath, keyPath string) {
	cert, okCert := v.file(section+".cert", certPath)
	key, okKey := v.file(section+".key", keyPath)
	if !okCert || !okKey {
		return
	}
	if n, err := parseCertificates(cert); err != nil || n == 0 {
		v.certificates(section+".cert", certPath)
		return
	}
	if block, _ := pem.Decode(key); block == nil {
		v.fail(section+".key", "it should contain -----BEGIN PRIVATE KEY-----", "%q has no private key in PEM form", clip(keyPath))
		return
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		v.fail(section+".key", "check that it is the unencrypted key of "+section+".cert", "%q: %v", clip(keyPath), err)
	}
}
