package certs

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/certs/certstest"
)

// FuzzFiles: whatever files hold, they are used or there is a reason in one line.
func FuzzFiles(f *testing.F) {
	ca := certstest.NewAuthority(f, "ca")
	cert, key := ca.Issue(f, x509.Certificate{})
	f.Add(cert, key)
	f.Add(append(cert, ca.PEM...), key[:40])
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n"), []byte("-----BEGIN PRIVATE KEY-----\nDEK-Info: x\n\nAAAA\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		files := Files{Section: "s", Cert: "c", Key: "k"}
		list, err := certificates(files.CertKey(), files.Cert, cert)
		if err == nil {
			m := &Material{Chain: list, Authorities: list}
			for _, fault := range Inspect(files, m, time.Unix(0, 0)) {
				if strings.Contains(fault.Error(), "\n") {
					t.Errorf("%q is not one line", fault)
				}
			}
			_, err = keyPair(files, cert, key)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is not one line", err)
		}
	})
}
