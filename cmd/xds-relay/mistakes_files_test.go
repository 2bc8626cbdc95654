package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/xds-relay/xds-relay/internal/certs/certstest"
)

// differs is what differs in the lines of TestMistakesInFiles, by what stands for it.
var differs = []struct {
	what *regexp.Regexp
	is   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:]+Z`), "TIME"},
	{regexp.MustCompile(`process \d+`), "process PROCESS"},
}

// TestMistakesInFiles: what is wrong with certificates, with the directory of the snapshot
// and with a configuration that is read again is said in the line that docs/operations.md
// has. The relay serves all the same, or goes on.
func TestMistakesInFiles(t *testing.T) {
	ours, theirs := certstest.NewAuthority(t, "ours"), certstest.NewAuthority(t, "theirs")
	pair := func(a *certstest.Authority, c x509.Certificate) map[string][]byte {
		c.Subject.CommonName = "relay"
		cert, key := a.Issue(t, c)
		return map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ours.PEM, "theirs.crt": theirs.PEM}
	}
	good := pair(ours, x509.Certificate{})
	serves := func(c x509.Certificate) string {
		f := pair(ours, c)
		own, err := tls.X509KeyPair(f["tls.crt"], f["tls.key"])
		if err != nil {
			t.Fatal(err)
		}
		return serveClusters(t, credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}))
	}
	const downstream, upstream = `downstream: {tls: {cert: DIR/tls.crt, key: DIR/tls.key, client_ca: DIR/ca.crt}}`, `upstream: {address: '%s', tls: {ca: DIR/ca.crt}}`
	upstreamAt := func(address, ca string) string {
		return strings.NewReplacer("%s", address, "ca.crt", ca).Replace(upstream) + "\ndownstream: {ready_types: [CDS]}"
	}
	const rules = `authz: {rules_file: DIR/rules.yaml}`
	allowed := map[string][]byte{"rules.yaml": []byte("rules: [{identity: anonymous, read: [{types: [CDS], names: [a]}]}]\n")}
	right := serves(x509.Certificate{})
	elsewhere := serves(x509.Certificate{DNSNames: []string{"istiod.istio-system.svc"}})
	expired := serves(x509.Certificate{NotAfter: time.Now().Add(-time.Minute)})
	again := func(config string) func(*testing.T, string, string, *os.Process) {
		return func(t *testing.T, dir, _ string, p *os.Process) {
			certstest.Rename(t, dir, map[string][]byte{"relay.yaml": []byte(config)})
			if err := p.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		config  string
		files   map[string][]byte
		address string
		does    func(t *testing.T, dir, address string, p *os.Process)
		says    string
	}{
		"expired": {config: downstream, files: pair(ours, x509.Certificate{NotAfter: time.Now().Add(-time.Minute)}),
			says: `ERROR downstream.tls.cert: the certificate of "relay" in "FILE" has expired: it was valid until TIME; renew it; the relay takes the new files by itself`},
		"not yet valid": {config: downstream, files: pair(ours, x509.Certificate{NotBefore: time.Now().Add(time.Hour)}),
			says: `WARN downstream.tls.cert: the certificate of "relay" in "FILE" is not valid yet: it begins on TIME; see the clock of this host, and of whoever issued it`},
		"a wrong authority": {config: upstreamAt(right, "theirs.crt"), files: good, address: right,
			says: `WARN cannot reach the control plane address=ADDRESS reason=unavailable code=Unavailable err="ADDRESS has a certificate from an authority that is not trusted: set upstream.tls.ca to a file with the authority that signed it`},
		"a wrong name": {config: upstreamAt(elsewhere, "ca.crt"), files: good, address: elsewhere,
			says: `WARN cannot reach the control plane address=ADDRESS reason=unavailable code=Unavailable err="ADDRESS has no certificate for the name that the relay expects: set upstream.tls.server_name to one that is in its certificate`},
		"an expired certificate of the control plane": {config: upstreamAt(expired, "ca.crt"), files: good, address: expired,
			says: `WARN cannot reach the control plane address=ADDRESS reason=unavailable code=Unavailable err="ADDRESS has a certificate that has expired: renew it there, or set the clock of this host`},
		"a SPIFFE agent that does not run": {config: `downstream: {tls: {spiffe: {workload_api: "unix:///run/agent.sock", trust_domains: [example.org]}}}`,
			says: `WARN the SPIFFE agent has sent no certificate yet, and without one there is no connection; see whether it runs, and has an entry for the relay agent=unix:///run/agent.sock`},
		"a client of another authority": {config: downstream, files: good,
			does: func(t *testing.T, _, address string, _ *os.Process) {
				cert, key := theirs.Issue(t, x509.Certificate{})
				own, err := tls.X509KeyPair(cert, key)
				if err != nil {
					t.Fatal(err)
				}
				conn, err := tls.Dial("tcp", address, &tls.Config{
					RootCAs: ours.Pool(), NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13,
					GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }, // whatever is asked for
				})
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_, _ = conn.Read(make([]byte, 1)) // until the relay has judged it
			},
			says: `WARN a client could not connect: its certificate is signed by nobody in downstream.tls.client_ca reason=unknown_ca`},
		"a client that speaks TLS": {config: "{}",
			does: func(t *testing.T, _, address string, _ *os.Process) {
				if conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: ours.Pool(), MinVersion: tls.VersionTLS13}); err == nil {
					conn.Close()
					t.Error("it can")
				}
			},
			says: `WARN a client could not connect: it speaks TLS, and downstream.tls is not set reason=protocol`},
		"a configuration that is wrong when it is read again": {config: "{}", does: again("timers:\n  dne_timeout: soon\n"),
			says: `ERROR the configuration was not reloaded; the one before stays in force err="FILE:2:16: timers.dne_timeout: wants a duration such as 30s, found \"soon\" (units are ms, s, m and h)" trigger=SIGHUP`},
		"rules that are wrong when they are read again": {config: rules, files: allowed,
			does: func(t *testing.T, dir, _ string, _ *os.Process) {
				certstest.Rename(t, dir, map[string][]byte{"rules.yaml": []byte("rules:\n  - identity: anonymous\n    raed: []\n")})
			},
			says: `ERROR authz.rules_file was not reloaded; the rules before stay in force path=FILE err="FILE:3:5: unknown field \"raed\" (did you mean \"read\"?)"`},
		"rules that are gone at a reload": {config: rules, files: allowed,
			does: func(t *testing.T, dir, _ string, p *os.Process) {
				if err := os.Remove(filepath.Join(dir, "rules.yaml")); err != nil {
					t.Fatal(err)
				}
				if err := p.Signal(syscall.SIGHUP); err != nil {
					t.Fatal(err)
				}
			},
			says: `ERROR the configuration was not reloaded; the one before stays in force err="FILE:1:21: authz.rules_file: cannot read \"FILE\": no such file or directory (check the path and the permissions; without the file nobody can be served)" trigger=SIGHUP`},
		"a key that needs a restart": {config: "{}", does: again("groups:\n  max: 7\n"),
			says: `WARN a changed key needs a restart; the old value stays in force key=groups.max old=1000 new=7 trigger=SIGHUP`},
		"a second relay on one directory": {config: "cache: {snapshot: {dir: DIR/state}}",
			says: `ERROR the snapshot directory belongs to another relay: its snapshot is loaded, and nothing is written until the other relay ends dir=FILE err="another relay that runs (process PROCESS, instance \"relay-0\") writes to FILE; give each relay a cache.snapshot.dir of its own, or end the other one"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			config := filepath.Join(dir, "relay.yaml")
			certstest.InPlace(t, dir, tt.files)
			certstest.InPlace(t, dir, map[string][]byte{"relay.yaml": []byte(strings.ReplaceAll(tt.config, "DIR", dir) + "\n")})
			if strings.Contains(tt.config, "snapshot") {
				defer serveProgram(t, "-c", config, "--set", "instance=relay-0").stop(t)
			}
			cmd := program(t, "serve", "-c", config, "--listen", "127.0.0.1:0", "--admin", "", "--set", "log.format=text", "--set", "downstream.drain_delay=0s", "--set", "downstream.drain=0s")
			said := new(lines)
			cmd.Stderr = said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() }() // what it said is looked at
			eventually(t, "it serves", func() bool { return said.after("serving  listener=") != "" })
			if tt.does != nil {
				tt.does(t, dir, said.after("serving  listener="), cmd.Process)
			}
			paths := regexp.MustCompile(regexp.QuoteMeta(dir) + `/[a-z.]+`)
			eventually(t, tt.says, func() bool {
				text := paths.ReplaceAllString(said.String(), "FILE")
				if tt.address != "" {
					text = strings.ReplaceAll(text, tt.address, "ADDRESS")
				}
				for _, d := range differs {
					text = d.what.ReplaceAllString(text, d.is)
				}
				return strings.Contains(strings.Join(strings.Fields(text), " "), tt.says)
			})
			documented(t, tt.says)
		})
	}
}
