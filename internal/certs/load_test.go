package certs

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/certs/certstest"
)

// What makes files unusable is told apart, with the key of the configuration, in one line.
func TestLoadTellsApart(t *testing.T) {
	w := newWorld(t)
	good, other := w.files(x509.Certificate{}), w.files(x509.Certificate{})
	encrypted := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")})
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
	for _, tt := range []struct {
		name  string
		files map[string][]byte
		want  []string // "key problem: part of the message"
	}{
		{"good", nil, nil},
		{"a chain and comments", map[string][]byte{"tls.crt": bytes.Join([][]byte{[]byte("hello\n"), good["tls.crt"], good["ca.crt"]}, nil)}, nil},
		{"key of another certificate", map[string][]byte{"tls.key": other["tls.key"]}, []string{"upstream.tls.key wrong_key: is not the key of upstream.tls.cert"}},
		{"a certificate for a key", map[string][]byte{"tls.key": good["tls.crt"]}, []string{"upstream.tls.key bad_key: found a certificate rather than a key"}},
		{"encrypted key", map[string][]byte{"tls.key": encrypted}, []string{"upstream.tls.key bad_key: is encrypted"}},
		{"no PEM", map[string][]byte{"tls.crt": []byte("hello"), "ca.crt": {}, "tls.key": []byte("hello")}, []string{
			"upstream.tls.ca not_pem: has no certificate in PEM form", "upstream.tls.cert not_pem: has no certificate in PEM form"}},
		{"no PEM of a key", map[string][]byte{"tls.key": []byte("hello")}, []string{"upstream.tls.key not_pem: has no private key in PEM form"}},
		{"a key for a certificate", map[string][]byte{"tls.crt": good["tls.key"]}, []string{"upstream.tls.cert not_pem: has no certificate"}},
		{"not a certificate", map[string][]byte{"ca.crt": append(slices.Clone(good["ca.crt"]), broken...)}, []string{"upstream.tls.ca malformed: certificate 2 in"}},
		{"cut off", map[string][]byte{"tls.crt": good["tls.crt"][:100]}, []string{"upstream.tls.cert malformed: begins and does not end"}},
		{"gone", map[string][]byte{"tls.crt": nil, "tls.key": nil}, []string{"upstream.tls.cert unreadable: no such file", "upstream.tls.key unreadable: no such file"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.dir = t.TempDir()
			certstest.InPlace(t, w.dir, good)
			certstest.InPlace(t, w.dir, tt.files)
			for name, data := range tt.files {
				if data == nil {
					os.Remove(filepath.Join(w.dir, name))
				}
			}
			m, err := Load(w.paths())
			faults := Faults(err)
			if len(faults) != len(tt.want) || err == nil && (m.Pair == nil || m.Pool == nil) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			for i, f := range faults {
				head, part, _ := strings.Cut(tt.want[i], ": ")
				if f.Key+" "+string(f.Problem) != head || !strings.Contains(f.Error(), part) || strings.Contains(f.Error(), "\n") {
					t.Errorf("got %s %s: %v; want %s", f.Key, f.Problem, f, tt.want[i])
				}
			}
		})
	}
}

// What is a mistake though the files can be used is told apart, too, and a legitimate pair
// says nothing.
func TestInspect(t *testing.T) {
	ours, again, theirs := certstest.NewAuthority(t, "ours"), certstest.NewAuthority(t, "ours"), certstest.NewAuthority(t, "theirs")
	now := time.Now()
	old := certstest.NewAuthorityFrom(t, x509.Certificate{Subject: pkix.Name{CommonName: "ours"}, NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(-time.Hour)})
	for _, tt := range []struct {
		name string
		hop  Hop
		by   *certstest.Authority
		cert x509.Certificate
		add  []byte // to the certificate's file
		ca   []byte
		want []Problem
	}{
		{name: "good", by: ours, ca: ours.PEM},
		{name: "good, for servers", hop: Downstream, by: ours, ca: ours.PEM},
		{name: "signed by somebody else, who may be trusted by the peer", by: theirs, ca: ours.PEM},
		{name: "with its authority", by: ours, add: ours.PEM, ca: ours.PEM},
		{name: "an authority of the same name", by: again, ca: ours.PEM, want: []Problem{WrongCA}},
		{name: "the same, beside the right one", by: again, ca: append(slices.Clone(ours.PEM), again.PEM...)},
		{name: "followed by who has not signed it", by: ours, add: theirs.PEM, ca: ours.PEM, want: []Problem{WrongCA}},
		{name: "expired", by: ours, ca: ours.PEM, cert: x509.Certificate{NotAfter: now.Add(-time.Minute)}, want: []Problem{Expired}},
		{name: "not yet valid", by: ours, ca: ours.PEM, cert: x509.Certificate{NotBefore: now.Add(time.Minute)}, want: []Problem{NotYetValid}},
		{name: "expiring", by: ours, ca: ours.PEM, cert: x509.Certificate{NotBefore: now.Add(-3 * time.Hour), NotAfter: now.Add(time.Hour)}, want: []Problem{Expiring}},
		{name: "an authority that has expired", by: theirs, ca: old.PEM, want: []Problem{Expired}},
		{name: "the same, beside one that has not", by: ours, ca: append(slices.Clone(old.PEM), ours.PEM...)},
		{name: "for servers only", by: ours, ca: ours.PEM, cert: x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, want: []Problem{WrongUse}},
		{name: "for clients only", hop: Downstream, by: ours, ca: ours.PEM, cert: x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, want: []Problem{WrongUse}},
		{name: "no name", hop: Downstream, by: ours, ca: ours.PEM, cert: x509.Certificate{DNSNames: []string{}}, want: []Problem{NoName}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			cert, key := tt.by.Issue(t, tt.cert)
			certstest.InPlace(t, dir, map[string][]byte{"c": append(cert, tt.add...), "k": key, "a": tt.ca})
			f := Files{Section: "s", Hop: tt.hop, Cert: filepath.Join(dir, "c"), Key: filepath.Join(dir, "k"), CA: filepath.Join(dir, "a")}
			m, err := Load(f)
			if err != nil {
				t.Fatal(err)
			}
			var got []Problem
			for _, fault := range Inspect(f, m, now) {
				got = append(got, fault.Problem)
				if strings.Contains(fault.Error(), "\n") || fault.Hint == "" {
					t.Errorf("%v: no one line with what to do", fault)
				}
				t.Log(fault)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
