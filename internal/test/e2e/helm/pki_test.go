package helm

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority issues certificates as cert-manager does.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	pem  string
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, pool: x509.NewCertPool()}
	a.cert, a.key, a.pem = a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) issue(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// secret is what cert-manager puts into a Secret, and the serial number of the certificate.
func (a *authority) secret(name string) (data map[string]string, serial *big.Int) {
	a.t.Helper()
	cert, key, text := a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return map[string]string{
		"tls.crt": text, "tls.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "ca.crt": a.pem,
	}, cert.SerialNumber
}

// client is what a client with such a Secret says in the handshake.
func (a *authority) client(server string) *tls.Config {
	a.t.Helper()
	data, _ := a.secret("envoy")
	pair, err := tls.X509KeyPair([]byte(data["tls.crt"]), []byte(data["tls.key"]))
	if err != nil {
		a.t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: a.pool, ServerName: server, NextProtos: []string{"h2"}}
}

// volume is the content of one: files with a mode, or nothing for a directory that the pod writes to.
type volume struct {
	mode os.FileMode
	data map[string]string
}

// mount makes it as a kubelet does: the names are symlinks through ..data, which is replaced when the content changes.
// If root runs the test, all is the group's of the pod.
func (v volume) mount(t testing.TB, dir string, group int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	owned := func(path string, mode os.FileMode) {
		t.Helper()
		if os.Getuid() == 0 {
			must(os.Chown(path, 0, group))
		}
		must(os.Chmod(path, mode)) // whatever the umask
	}
	must(os.MkdirAll(dir, 0o755))
	if v.data == nil {
		owned(dir, 0o777|os.ModeSetgid)
		return
	}
	fresh := fmt.Sprintf("..%d", time.Now().UnixNano())
	must(os.Mkdir(filepath.Join(dir, fresh), 0o755))
	for name, text := range v.data {
		path := filepath.Join(dir, fresh, name)
		must(os.WriteFile(path, []byte(text), 0o600))
		owned(path, v.mode)
	}
	must(os.Symlink(fresh, filepath.Join(dir, "..data.new")))
	must(os.Rename(filepath.Join(dir, "..data.new"), filepath.Join(dir, "..data")))
	for name := range v.data {
		if link := filepath.Join(dir, name); !exists(link) {
			must(os.Symlink(filepath.Join("..data", name), link))
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
