package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/xds-relay/xds-relay/internal/certs/certstest"
)

// withCertificates writes a configuration with TLS on both hops, and its files.
func withCertificates(t *testing.T, files map[string][]byte) (config, dir string) {
	t.Helper()
	dir = t.TempDir()
	certstest.InPlace(t, dir, files)
	path := func(name string) string { return filepath.Join(dir, name) }
	config = path("relay.yaml")
	text := fmt.Sprintf(`upstream:
  address: 127.0.0.1:1
  tls:
    ca: %q
    cert: %q
    key: %q
downstream:
  drain: 0s
  tls:
    cert: %q
    key: %q
    client_ca: %q
`, path("ca.crt"), path("tls.crt"), path("tls.key"), path("tls.crt"), path("tls.key"), path("ca.crt"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config, dir
}

// TestCertificateMistakes: what is wrong with certificates is told apart in one line, with
// the key and its place. What cannot be used is refused by validate and serve alike; with
// what can be, and is a mistake, the relay starts, and both say so.
func TestCertificateMistakes(t *testing.T) {
	now := time.Now()
	ours, theirs, again := certstest.NewAuthority(t, "ours"), certstest.NewAuthority(t, "theirs"), certstest.NewAuthority(t, "ours")
	set := func(a *certstest.Authority, c x509.Certificate, ca []byte) map[string][]byte {
		cert, key := a.Issue(t, c)
		return map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca}
	}
	good := set(ours, x509.Certificate{}, ours.PEM)
	with := func(name string, data []byte) map[string][]byte {
		files := map[string][]byte{"tls.crt": good["tls.crt"], "tls.key": good["tls.key"], "ca.crt": good["ca.crt"]}
		if files[name] = data; data == nil {
			delete(files, name)
		}
		return files
	}
	for _, tt := range []struct {
		name   string
		files  map[string][]byte
		refuse bool
		// What validate says after the place, and serve too: with the key of the second.
		at, says string
	}{
		{"good", good, false, "", ""},
		{"an authority of another name", set(theirs, x509.Certificate{}, ours.PEM), false, "", ""},
		{"expired", set(ours, x509.Certificate{NotAfter: now.Add(-time.Minute)}, ours.PEM), false, ":5:11: upstream.tls.cert: ", "has expired: it was valid until "},
		{"not yet valid", set(ours, x509.Certificate{NotBefore: now.Add(time.Hour)}, ours.PEM), false, ":5:11: upstream.tls.cert: ", "is not valid yet: it begins on "},
		{"about to expire", set(ours, x509.Certificate{NotBefore: now.Add(-3 * time.Hour), NotAfter: now.Add(time.Hour)}, ours.PEM), false, ":5:11: upstream.tls.cert: ", "expires on "},
		{"wrong authority", set(again, x509.Certificate{}, ours.PEM), false, ":5:11: upstream.tls.cert: ", "is signed by another authority than the one of that name"},
		{"no name", set(ours, x509.Certificate{DNSNames: []string{}}, ours.PEM), false, ":10:11: downstream.tls.cert: ", "has no subject alternative name"},
		{"wrong use", set(ours, x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, ours.PEM), false, ":5:11: upstream.tls.cert: ", "is not made for clients"},
		{"wrong key", with("tls.key", set(ours, x509.Certificate{}, nil)["tls.key"]), true, ":6:10: upstream.tls.key: ", "is not the key of upstream.tls.cert"},
		{"not PEM", with("ca.crt", []byte("hello")), true, ":4:9: upstream.tls.ca: ", "has no certificate in PEM form"},
		{"cut off", with("tls.crt", good["tls.crt"][:200]), true, ":5:11: upstream.tls.cert: ", "begins and does not end"},
		{"unreadable", with("tls.key", nil), true, ":6:10: upstream.tls.key: ", "no such file or directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			config, _ := withCertificates(t, tt.files)
			code, line := 0, ""
			if tt.refuse {
				code = 2
			}
			if tt.says != "" {
				line = config + tt.at
			}
			said := func(args ...string) string {
				t.Helper()
				cmd := program(t, args...)
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				_ = cmd.Run() // the exit code tells
				if got := cmd.ProcessState.ExitCode(); got != code {
					t.Errorf("%s: exit %d, want %d\n%s", args[0], got, code, &out)
				}
				return out.String()
			}
			hasLine := func(what, text string) {
				t.Helper()
				for l := range strings.Lines(text) {
					if strings.Contains(l, line) && strings.Contains(l, tt.says) {
						if tt.says != "" {
							t.Logf("%s: %s", what, l)
						}
						return
					}
				}
				t.Errorf("%s has no line with %q and %q:\n%s", what, line, tt.says, text)
			}
			text := said("validate", "-c", config)
			hasLine("validate", text)
			if notes := strings.Count(text, "note: "); tt.says == "" && notes > 0 {
				t.Errorf("validate has something against it:\n%s", text)
			}
			if tt.refuse {
				hasLine("serve", said("serve", "-c", config))
				return
			}
			s := serveProgram(t, "-c", config)
			if _, line, _ = strings.Cut(tt.at, ": "); line == "" && strings.Contains(s.early, "WARN") {
				t.Errorf("serve has something against it:\n%s", s.early)
			}
			hasLine("serve", s.early)
			s.stop(t)
		})
	}
}

// TestServingCertificateExpires: a relay whose clients could not connect is not ready, and
// says why; it is again when the certificate has been renewed (ERR-14).
func TestServingCertificateExpires(t *testing.T) {
	ca := certstest.NewAuthority(t, "ours")
	files := func(c x509.Certificate) map[string][]byte {
		cert, key := ca.Issue(t, c)
		return map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca.PEM}
	}
	config, dir := withCertificates(t, files(x509.Certificate{NotAfter: time.Now().Add(-time.Minute)}))
	s := serveProgram(t, "-c", config)
	defer s.stop(t)
	eventually(t, "/readyz says why", func() bool { // first that the relay does not listen yet
		code, body := s.get(t, "/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "the certificate of downstream.tls.cert has expired: it was valid until ")
	})
	client, key := ca.Issue(t, x509.Certificate{})
	pair, err := tls.X509KeyPair(client, key)
	if err != nil {
		t.Fatal(err)
	}
	creds := credentials.NewTLS(&tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if _, err := subscribe(t, s.address, creds); err == nil {
		t.Error("a client connects all the same")
	}
	const counted = `xds_relay_handshake_failures_total{hop="downstream",reason="expired"} `
	eventually(t, "/metrics counts handshakes that failed because of it", func() bool {
		_, body := s.get(t, "/metrics")
		return strings.Contains(body, counted) && !strings.Contains(body, counted+"0\n")
	})
	certstest.Rename(t, dir, files(x509.Certificate{}))
	eventually(t, "it is ready again", func() bool {
		code, _ := s.get(t, "/readyz")
		return code == http.StatusOK
	})
}
