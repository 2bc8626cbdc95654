package envoy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"google.golang.org/grpc/credentials"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/test/e2e/loopback"
	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// root is the repository's, where the commands of examples are to be run.
const root = "../../../.."

// startProgram runs a program of an example until the test ends, in the repository's root.
func startProgram(t testing.TB, env []string, path string, args ...string) *peer.Process {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
	return peer.Start(t, cmd)
}

// says complains until a URL answers with 200 and a text.
func says(url, text string) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !strings.Contains(string(body), text)) {
		err = fmt.Errorf("%s answers %d %.200q, want %q", url, resp.StatusCode, body, text)
	}
	return err
}

// edited is a file of an example with other addresses and paths: pairs of what is to be
// there and what is put in its place.
func edited(t testing.TB, example, file string, pairs ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "deploy/examples", example, file))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("%s/%s has no %q any more", example, file, pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// write writes a text to a file.
func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// bootstrapOf is a bootstrap that is written in YAML.
func bootstrapOf(t testing.TB, text string) (b realenvoy.Bootstrap) {
	t.Helper()
	j, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(j, &b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// first returns the first complaint there is.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// portOf is the port of host:port.
func portOf(t testing.TB, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// commands are those of a README that begin with some words: what comes after them.
func commands(t testing.TB, readme, words string) (args []string) {
	t.Helper()
	for line := range strings.Lines(readme) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), words); ok {
			return strings.Fields(rest)
		}
	}
	t.Fatalf("the README has no command %q any more", words)
	return nil
}

// The quickstart does what its README says, with its own commands and files: only the
// addresses are the test's, so that it can run beside others.
func TestExample_Quickstart(t *testing.T) {
	t.Parallel()
	realenvoy.Need(t)
	readme := edited(t, "quickstart", "README.md")
	dir := t.TempDir()
	plane := filepath.Join(dir, "controlplane")
	if text, err := exec.Command("go", "build", "-o", plane, root+"/deploy/examples/quickstart/controlplane").CombinedOutput(); err != nil {
		t.Fatalf("build the control plane: %v\n%s", err, text)
	}
	web, backend := loopback.Reserve(t), loopback.Reserve(t)
	xds, relay, admin, metrics := loopback.Reserve(t), loopback.Reserve(t), loopback.Reserve(t), loopback.Reserve(t)

	startPlane := func() *peer.Process {
		return startProgram(t, nil, plane, append(commands(t, readme, "go run ./deploy/examples/quickstart/controlplane"),
			"-listen", xds, "-web", web, "-backend", backend, "-every", "100ms")...)
	}
	cp := startPlane()
	r := startProgram(t, nil, peer.Binary(t), append(commands(t, readme, "go run ./cmd/xds-relay"),
		"--upstream", xds, "--listen", relay, "--admin", admin, "--set", "metrics.listen="+metrics,
		"--set", "upstream.backoff.initial=100ms", "--set", "upstream.backoff.max=500ms")...)
	peer.Eventually(t, patience, func() error { return says("http://"+metrics+"/readyz?verbose", "[+]listening ok") })

	args := commands(t, readme, "envoy")
	if want := []string{"-c", "deploy/examples/quickstart/envoy.yaml"}; fmt.Sprint(args) != fmt.Sprint(want) {
		t.Fatalf("Envoy is started with %q, want %q", args, want)
	}
	e := realenvoy.Start(t, bootstrapOf(t, edited(t, "quickstart", "envoy.yaml", "port_value: 18000", "port_value: "+portOf(t, relay))), realenvoy.Options{})
	e.WaitReady(patience)
	address := listens(t, e, "web")
	peer.Eventually(t, patience, func() error { return answers(address, "hello from the backend") })

	revision := func() (int, error) {
		client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + address)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		return strconv.Atoi(resp.Header.Get("x-revision"))
	}
	grows := func() error {
		first, err := revision()
		if err != nil {
			return err
		}
		peer.Eventually(t, patience, func() error {
			next, err := revision()
			if err == nil && next <= first {
				err = fmt.Errorf("the revision stays at %d", next)
			}
			return err
		})
		return nil
	}
	peer.Eventually(t, patience, grows)
	// Each address of the README is one of those that relay.yaml has.
	for port, url := range map[string]string{"18001": "http://" + admin, "18002": "http://" + metrics} {
		for line := range strings.Lines(readme) {
			path, ok := strings.CutPrefix(strings.TrimSpace(line), "curl http://127.0.0.1:"+port)
			if !ok {
				continue
			}
			text := map[string]string{"/clients": "quickstart-envoy", "/resources?type=RDS": `"name": "web"`, "/readyz?verbose": "ready", "/metrics": "xds_relay_ready 1"}[path]
			if text == "" {
				t.Errorf("no test knows what %s answers", path)
			}
			if err := says(url+path, text); err != nil {
				t.Error(err)
			}
		}
	}
	health := exec.Command(peer.Binary(t), "healthcheck", "--address", metrics)
	if text, err := health.CombinedOutput(); err != nil || string(text) != "ready\n" {
		t.Errorf("healthcheck: %v, %q", err, text)
	}

	// Without the control plane requests go on, and when it is back, so do changes.
	cp.Signal(syscall.SIGINT)
	_ = cp.Ended() // as a signal ends it
	if err := first(answers(address, "hello from the backend"), says("http://"+metrics+"/readyz", "ready")); err != nil {
		t.Error(err)
	}
	startPlane()
	peer.Eventually(t, patience, grows)
	r.Signal(syscall.SIGINT)
	_ = r.Ended()
	if code := r.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the relay ends with %d", code)
	}
}

// authority issues certificates for both sides of connections.
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
	a.key, a.cert, a.pem = a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) issue(template *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate, string) {
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
	return key, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// mounted is a directory as Kubernetes mounts a secret: ca.crt, tls.crt and tls.key, for
// some names, for 127.0.0.1, and with the SPIFFE ID of a workload.
func (a *authority) mounted(workload string, names ...string) (dir string) {
	a.t.Helper()
	dir = a.t.TempDir()
	id := &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/default/sa/" + workload}
	key, _, cert := a.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "peer"}, URIs: []*url.URL{id}, DNSNames: names, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	write(a.t, filepath.Join(dir, "ca.crt"), a.pem)
	write(a.t, filepath.Join(dir, "tls.crt"), cert)
	write(a.t, filepath.Join(dir, "tls.key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	return dir
}

// The regional relay before a control plane, and the sidecar relay before the regional one,
// run from the files of the examples, each with the Envoy of its example. Only addresses and
// paths are the test's.
func TestExample_RegionalAndSidecar(t *testing.T) {
	t.Parallel()
	realenvoy.Need(t)
	a := newAuthority(t)
	planeFiles := a.mounted("control-plane")
	pair, err := tls.LoadX509KeyPair(filepath.Join(planeFiles, "tls.crt"), filepath.Join(planeFiles, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	m := byADS()
	cp := newPlane(t, m.service("a", realenvoy.Backend(t, "a")))
	cp.credentials = credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: a.pool, ClientAuth: tls.RequireAndVerifyClientCert})
	cp.Start()

	const name = "xds-relay.relay-system.svc"
	tier, tierAdmin, tierMetrics := loopback.Reserve(t), loopback.Reserve(t), loopback.Reserve(t)
	regional := write(t, filepath.Join(t.TempDir(), "relay.yaml"), edited(t, "regional", "relay.yaml",
		"/etc/xds-relay/rules.yaml", write(t, filepath.Join(t.TempDir(), "rules.yaml"), edited(t, "regional", "rules.yaml")),
		"/var/run/xds-relay/tls", a.mounted("xds-relay", name), "/var/lib/xds-relay/state", filepath.Join(t.TempDir(), "state"),
		"0.0.0.0:18000", tier, "127.0.0.1:18001", tierAdmin, "0.0.0.0:18002", tierMetrics))
	startProgram(t, []string{"XDS_UPSTREAM=" + cp.addr}, peer.Binary(t), "serve", "-c", regional)
	peer.Eventually(t, patience, func() error { return says("http://"+tierMetrics+"/readyz", "ready") })
	far := realenvoy.Start(t, bootstrapOf(t, edited(t, "regional", "envoy.yaml",
		"address: "+name+", port_value: 18000", "address: 127.0.0.1, port_value: "+portOf(t, tier), "/var/run/proxy/tls", a.mounted("proxy"))),
		realenvoy.Options{Name: "regional"})

	sockets, err := os.MkdirTemp("", "sidecar") // short: the name of a socket may have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	socket := filepath.Join(sockets, "xds.sock")
	besideAdmin, besideMetrics := loopback.Reserve(t), loopback.Reserve(t)
	sidecar := write(t, filepath.Join(t.TempDir(), "relay.yaml"), edited(t, "sidecar", "relay.yaml",
		"/var/run/xds-relay/tls", a.mounted("xds-relay-sidecar"), "/var/lib/xds-relay/state", filepath.Join(t.TempDir(), "state"),
		"/run/xds-relay/xds.sock", socket, "127.0.0.1:18001", besideAdmin, "0.0.0.0:18002", besideMetrics))
	startProgram(t, []string{"XDS_UPSTREAM=" + tier}, peer.Binary(t), "serve", "-c", sidecar)
	peer.Eventually(t, patience, func() error { return says("http://"+besideMetrics+"/startupz", "started") })
	beside := realenvoy.Start(t, bootstrapOf(t, edited(t, "sidecar", "envoy.yaml", "/run/xds-relay/xds.sock", socket)), realenvoy.Options{Name: "sidecar"})

	envoys := []*realenvoy.Envoy{far, beside}
	everywhere := func(answer string) {
		t.Helper()
		for _, e := range envoys {
			e.WaitReady(patience)
			address := listens(t, e, "web")
			peer.Eventually(t, patience, func() error { return answers(address, answer) })
		}
	}
	everywhere("a")
	cp.Change(func(has world) { has.put(cache.Endpoint, "a", endpoints("a", realenvoy.Backend(t, "b"))) })
	everywhere("b")
	if n := cp.tape.Opened(); n > 2 { // the second says that a relay is behind the tier (NODE-11)
		t.Errorf("%d streams to the control plane, want that of the tier", n)
	}
}
