package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// selfSigned returns a certificate and its key in PEM form.
func selfSigned(t *testing.T) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "relay"}, NotAfter: time.Unix(1<<33, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func TestCheckFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	cert, key := selfSigned(t)
	_, otherKey := selfSigned(t)
	for name, data := range map[string][]byte{
		"cert.pem":   cert,
		"key.pem":    key,
		"other.pem":  otherKey,
		"bundle.pem": append(append([]byte("two roots\n"), cert...), cert...),
		"broken.pem": append(append([]byte{}, cert...), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})...),
		"text":       []byte("hello"),
		"hmac":       []byte("0123456789abcdef"),
	} {
		if err := os.WriteFile(filepath.Clean(name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const file = `upstream:
  tls:
    ca: %s
    cert: %s
    key: %s
version_key_file: %s
`
	for _, tt := range []struct {
		name              string
		ca, crt, key, mac string
		want              string
	}{
		{"good", "bundle.pem", "cert.pem", "key.pem", "hmac", ""},
		{"missing", "none", "none", "key.pem", "none", lines(
			`relay.yaml:3:9: upstream.tls.ca: cannot read "none": no such file or directory`,
			`    3 |     ca: none`,
			`      |         ^`,
			`  hint: check the path and the permissions`,
			`relay.yaml:4:11: upstream.tls.cert: cannot read "none": no such file or directory`,
			`    4 |     cert: none`,
			`      |           ^`,
			`  hint: check the path and the permissions`,
			`relay.yaml:6:19: version_key_file: cannot read "none": no such file or directory`,
			`    6 | version_key_file: none`,
			`      |                   ^`,
			`  hint: check the path and the permissions`)},
		{"not PEM", "text", "text", "key.pem", "text", lines(
			`relay.yaml:3:9: upstream.tls.ca: "text" has no certificate in PEM form`,
			`    3 |     ca: text`,
			`      |         ^`,
			`  hint: it should contain -----BEGIN CERTIFICATE-----`,
			`relay.yaml:4:11: upstream.tls.cert: "text" has no certificate in PEM form`,
			`    4 |     cert: text`,
			`      |           ^`,
			`  hint: it should contain -----BEGIN CERTIFICATE-----`,
			`relay.yaml:6:19: version_key_file: "text" has 5 bytes; a key has at least 16`,
			`    6 | version_key_file: text`,
			`      |                   ^`,
			`  hint: for example: head -c 32 /dev/urandom`)},
		{"broken, and the wrong key", "broken.pem", "cert.pem", "other.pem", "hmac", lines(
			`relay.yaml:3:9: upstream.tls.ca: certificate 2 in "broken.pem": x509: malformed certificate`,
			`    3 |     ca: broken.pem`,
			`      |         ^`,
			`relay.yaml:5:10: upstream.tls.key: "other.pem" is not the key of upstream.tls.cert: tls: private key does not match public key`,
			`    5 |     key: other.pem`,
			`      |          ^`,
			`  hint: check that both come from the same request`)},
		{"no key", "cert.pem", "cert.pem", "text", "hmac", lines(
			`relay.yaml:5:10: upstream.tls.key: "text" has no private key in PEM form`,
			`    5 |     key: text`,
			`      |          ^`,
			`  hint: it should contain -----BEGIN PRIVATE KEY-----`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse("relay.yaml", fmt.Appendf(nil, file, tt.ca, tt.crt, tt.key, tt.mac), nil)
			if err != nil {
				t.Fatal(err)
			}
			err = c.CheckFiles()
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			checkErr(t, err, tt.want)
			if tt.name == "missing" && !errors.Is(err, fs.ErrNotExist) {
				t.Error("the cause is lost")
			}
		})
	}
}
