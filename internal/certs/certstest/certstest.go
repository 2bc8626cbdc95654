// Package certstest makes authorities and certificates for tests, and replaces their files
// in the ways in which programs that renew them do. Only tests import it. It keeps no file
// that a test has not named, and its keys are worth nothing.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	Cert *x509.Certificate
	PEM  []byte // its certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes one that is valid for some hours, before and after.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	return NewAuthorityFrom(t, x509.Certificate{Subject: pkix.Name{CommonName: name}})
}

// NewAuthorityFrom makes one as described; what is zero is filled in.
func NewAuthorityFrom(t testing.TB, c x509.Certificate) *Authority {
	t.Helper()
	c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	a := &Authority{}
	cert, key := sign(t, &c, nil, nil)
	a.Cert, a.key, a.PEM = cert, key, encode("CERTIFICATE", cert.Raw)
	return a
}

// Pool trusts it alone.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.Cert)
	return p
}

// Issue makes a certificate for 127.0.0.1, for servers and clients, and its key, in PEM
// form. What the description leaves zero is filled in.
func (a *Authority) Issue(t testing.TB, c x509.Certificate) (cert, key []byte) {
	t.Helper()
	if c.IPAddresses == nil && c.DNSNames == nil {
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	if c.ExtKeyUsage == nil {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	made, private := sign(t, &c, a.Cert, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return encode("CERTIFICATE", made.Raw), encode("PRIVATE KEY", der)
}

func sign(t testing.TB, c, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if parent == nil {
		parent, parentKey = c, key
	}
	if c.SerialNumber == nil {
		if c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
			t.Fatal(err)
		}
	}
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-time.Hour)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(24 * time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made, key
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// A Replace puts files into a directory, by name, where others may be read at any time.
type Replace func(t testing.TB, dir string, files map[string][]byte)

// InPlace writes over each file.
func InPlace(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		write(t, filepath.Join(dir, name), data)
	}
}

// Rename writes beside each file, and renames over it.
func Rename(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		path := filepath.Join(dir, name)
		write(t, path+".new", data)
		rename(t, path+".new", path)
	}
}

// Swap is what Kubernetes does with a volume: each file is a link over the link ..data
// into a directory, and it is that link which is replaced.
func Swap(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	version, err := os.MkdirTemp(dir, "..")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		write(t, filepath.Join(version, name), data)
	}
	data := filepath.Join(dir, "..data")
	old, _ := os.Readlink(data) // there is none at first
	link(t, filepath.Base(version), data+"_tmp")
	rename(t, data+"_tmp", data)
	for name := range files {
		if path := filepath.Join(dir, name); old == "" {
			os.Remove(path)
			link(t, filepath.Join("..data", name), path)
		}
	}
	if old != "" {
		if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func rename(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func link(t testing.TB, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(fmt.Errorf("link: %w", err))
	}
}
