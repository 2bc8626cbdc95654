package preflight

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xds-relay/xds-relay/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var made = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// certificate is valid for 30 days from made, and signed by another one or by itself.
func certificate(t *testing.T, name string, by *x509.Certificate, byKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: made, NotAfter: made.AddDate(0, 0, 30),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if by == nil {
		by, byKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), byKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func write(t *testing.T, certs ...*x509.Certificate) (path string) {
	t.Helper()
	var data []byte
	for _, c := range certs {
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	path = filepath.Join(t.TempDir(), "cert.pem")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCertificates: not yet valid, valid, about to expire, expired, and in the wrong order
// are told apart.
func TestCertificates(t *testing.T) {
	root, rootKey := certificate(t, "root", nil, nil)
	leaf, _ := certificate(t, "leaf", root, rootKey)
	stranger, _ := certificate(t, "stranger", nil, nil)
	for name, tt := range map[string]struct {
		path  string
		after time.Duration // since made
		want  string
	}{
		"valid":         {write(t, leaf, root), 24 * time.Hour, "ok    k"},
		"not yet valid": {write(t, leaf, root), -time.Hour, "is not valid before 2030-01-01T00:00:00Z"},
		"expires soon":  {write(t, leaf), 24 * 24 * time.Hour, "note  k"},
		"expired":       {write(t, leaf), 31 * 24 * time.Hour, "has expired, on 2030-01-31T00:00:00Z"},
		"wrong order":   {write(t, root, leaf), 24 * time.Hour, "certificate 1 (CN=root) is not signed by the next one (CN=leaf)"},
		"wrong chain":   {write(t, leaf, stranger), 24 * time.Hour, "certificate 1 (CN=leaf) is not signed by the next one (CN=stranger)"},
		"none":          {write(t), 0, "cannot be read as certificates"},
	} {
		t.Run(name, func(t *testing.T) {
			c := config.Default()
			var said []string
			k := &checker{config: &c, tell: func(r Result) { said = append(said, r.String()) }, o: Options{
				Soon: 7 * 24 * time.Hour, Now: func() time.Time { return made.Add(tt.after) },
			}}
			k.chain("k", tt.path)
			if len(said) != 1 || !strings.Contains(said[0], tt.want) {
				t.Errorf("says %q, want %q", said, tt.want)
			}
			if strings.HasPrefix(said[0], string(Fail)) != (k.failed == 1) {
				t.Errorf("%d failed", k.failed)
			}
		})
	}
}
