//go:build linux

package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/internal/certs/certstest"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// attack is one way to harm a relay.
type attack struct {
	// ID is that of the threat in docs/security.md, and Name says what is done.
	ID, Name string
	// Short: it is played by every `go test`, too.
	Short bool
	// The world in which it takes place. Behind: the relay has another one above it. Remote: the attacker
	// does not come over loopback, which is exempt from shares. TLS: all have certificates.
	// In settings {dir} stands for a directory of the test's own, in which "key" has 32 bytes. Lives: so long are all certificates valid
	// but the victim's; 0: for hours.
	Plane               planeOptions
	Sets                []string
	Behind, Remote, TLS bool
	Lives               time.Duration
	// Harm is what the attacker does until its time is over, and what it has to say of it.
	Harm func(context.Context, *target) (string, error)
	// Meanwhile is what others try while Harm goes on, and After what must be true of the relay then.
	Meanwhile, After func(*world) error
	// Span is how long the long form takes; 0: 15 s.
	Span time.Duration
	// SlowPlane: updates are late because the control plane has so much else to send, and p99 says nothing.
	SlowPlane bool
	// Late is what p99 may be where it is more than 20 ms, and twice the quiet one (R32), for want of processors.
	Late time.Duration
	// MiB is by how much the relay's memory may grow at most; 0: by 128.
	MiB int64
}

// target is what an attacker knows.
type target struct {
	Addr, Admin   string
	CertFile, Key string // of its certificate; empty: it has none
	CA            string
	Name          string // that the server's certificate has to be for
	Span          time.Duration
}

// secure is what the attacker uses TLS with; nil: plaintext.
func (a *target) secure() (*tls.Config, error) {
	if a.CertFile == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(a.CertFile, a.Key)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(a.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: a.Name, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13}, nil
}

// creds are the same for gRPC.
func (a *target) creds() (credentials.TransportCredentials, error) {
	c, err := a.secure()
	if err != nil || c == nil {
		return insecure.NewCredentials(), err
	}
	return credentials.NewTLS(c), nil
}

// asAttacker is the environment variable that makes this program the attacker of an attack, and aim holds
// the target.
const (
	asAttacker = "ATTACK_AS"
	aim        = "ATTACK_TARGET"
)

// runAttacker is the attacker's process. Its report goes to standard output.
func runAttacker(name string) error {
	var at target
	if err := json.Unmarshal([]byte(os.Getenv(aim)), &at); err != nil {
		return err
	}
	for _, a := range attacks {
		if a.Name == name {
			ctx, cancel := context.WithTimeout(context.Background(), at.Span)
			defer cancel()
			report, err := a.Harm(ctx, &at)
			fmt.Println(report)
			return err
		}
	}
	return fmt.Errorf("there is no attack %q", name)
}

// world is where an attack takes place.
type world struct {
	*attack
	t      *testing.T
	plane  *plane
	relay  *peer.Relay
	victim *victim
	target target
	local  string // the relay's address on loopback
	ca     *certstest.Authority
	expiry time.Time // of certificates but the victim's; zero: some hours
	dir    string
}

// newWorld starts everybody but the attacker.
func newWorld(t *testing.T, a *attack) *world {
	t.Helper()
	w := &world{attack: a, t: t, dir: t.TempDir()}
	w.write("key", bytes.Repeat([]byte("k"), 32))
	if a.Lives > 0 {
		peer.Binary(t) // building it takes time
		w.expiry = time.Now().Add(a.Lives)
	}
	w.plane = startPlane(t, a.Plane)
	port := peer.Port(t)
	w.local = peer.Local(port)
	w.target = target{Addr: w.local, Admin: peer.Address(t)}
	listen := w.local
	if a.Remote {
		host := otherAddress(t)
		w.target.Addr = net.JoinHostPort(host, strconv.Itoa(port))
		listen += "," + w.target.Addr
	}
	sets := slices.Clone(peer.QuickBackoff)
	for _, set := range a.Sets {
		sets = append(sets, strings.ReplaceAll(set, "{dir}", w.dir))
	}
	sets = append(sets, "downstream.listen=["+listen+"]", "admin.listen="+w.target.Admin, "admin.pprof=true", "downstream.drain_delay=0s", "downstream.drain=0s")
	switch {
	case a.TLS:
		sets = append(sets, w.certificates()...)
	case a.Remote:
		sets = append(sets, "downstream.insecure=true")
	}
	up := w.plane.addr
	if a.Behind {
		upper := peer.NewRelay(t, peer.Address(t), peer.Address(t), nil)
		upper.Args = append(upper.Args, "--set", "upstream.address="+up, "--set", "downstream.listen=["+upper.Addr+"]", "--set", "admin.listen="+upper.Admin)
		upper.Start()
		up = upper.Addr
	}
	w.relay = peer.NewRelay(t, w.target.Addr, w.target.Admin, nil, append(sets, "upstream.address="+up)...)
	w.relay.Start()
	w.victim = startVictim(t, w.plane, w.local, "victim", w.credsOf("victim"))
	return w
}

// otherAddress is one of this machine's that is not loopback.
func otherAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	t.Skip("clients on loopback are exempt from shares, and this machine has no other address")
	return ""
}

// certificates makes those of the relay and the attacker, and returns the relay's settings.
func (w *world) certificates() []string {
	w.ca = certstest.NewAuthority(w.t, "attack")
	ip := net.ParseIP("127.0.0.1")
	if host, _, err := net.SplitHostPort(w.target.Addr); err == nil {
		ip = net.ParseIP(host)
	}
	cert, key := w.ca.Issue(w.t, x509.Certificate{DNSNames: []string{"relay.test"}, IPAddresses: []net.IP{ip}, NotAfter: w.expiry})
	w.write("ca.crt", w.ca.PEM)
	w.write("relay.crt", cert)
	w.write("relay.key", key)
	w.target.CertFile, w.target.Key = w.identity("attacker", w.expiry)
	w.target.CA, w.target.Name = w.path("ca.crt"), "relay.test"
	return []string{"downstream.tls.cert=" + w.path("relay.crt"), "downstream.tls.key=" + w.path("relay.key"), "downstream.tls.client_ca=" + w.path("ca.crt")}
}

// identity makes a client's certificate, and returns its files.
func (w *world) identity(name string, expiry time.Time) (cert, key string) {
	u := &url.URL{Scheme: "spiffe", Host: "attack.test", Path: "/" + name}
	c, k := w.ca.Issue(w.t, x509.Certificate{URIs: []*url.URL{u}, NotAfter: expiry})
	w.write(name+".crt", c)
	w.write(name+".key", k)
	return w.path(name + ".crt"), w.path(name + ".key")
}

// as is the target for another client than the attacker: with an identity of its own, where there are any, or else
// over loopback.
func (w *world) as(name string) *target { return w.asUntil(name, w.expiry) }

// asUntil is as with a certificate, where there are any, that expires at a time; zero: in some hours.
func (w *world) asUntil(name string, expiry time.Time) *target {
	at := w.target
	if w.ca != nil {
		at.CertFile, at.Key = w.identity(name, expiry)
	} else {
		at.Addr = w.local
	}
	return &at
}

// credsOf are the credentials of a client that outlives all others.
func (w *world) credsOf(name string) credentials.TransportCredentials {
	c, err := w.asUntil(name, time.Time{}).creds()
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) write(name string, text []byte) {
	if err := os.WriteFile(w.path(name), text, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// outcome is what an attack has done.
type outcome struct {
	quiet, loud time.Duration // p99 before it and meanwhile
	gap         time.Duration // the longest time without an update
	grown       int64         // of the relay's memory at its highest, in bytes
	report      string        // the attacker's
	ends        []error       // of the victim's streams
	wrong       []string      // what the victim was sent and has not asked for
	relayIsGone bool
	meanwhile   error
}

// play lets an attack happen.
func (w *world) play(span time.Duration) outcome {
	var o outcome
	begin := time.Now()
	peer.Eventually(w.t, time.Minute, func() error {
		if n := len(w.victim.since(begin)); n < w.beats() {
			return fmt.Errorf("the victim has heard %d beats", n)
		}
		return nil
	})
	quiet := w.victim.since(begin)
	o.quiet = p99(quiet[len(quiet)/5:]) // without its first ones
	before := w.memory("VmRSS:")
	w.forgetPeak()
	begin = time.Now()
	report := w.assault(span)
	if w.Meanwhile != nil {
		o.meanwhile = w.Meanwhile(w)
	}
	o.report = <-report
	end := time.Now()
	heard := w.victim.since(begin)
	o.gap, o.loud = gap(heard, begin, end), p99(heard)
	o.relayIsGone = w.relay.Gone()
	if !o.relayIsGone {
		o.grown = w.memory("VmHWM:") - before
	}
	o.ends, o.wrong = w.victim.trouble()
	return o
}

// beats is how many of them are heard in peace before an attack.
func (w *world) beats() int {
	if long() {
		return int(5 * time.Second / every)
	}
	return 10
}

// assault runs the attacker's process, on the last of the processors, with the others on the rest, where
// there are two. What it has to say comes when it has ended.
func (w *world) assault(span time.Duration) <-chan string {
	w.t.Helper()
	at := w.target
	at.Span = span
	text, err := json.Marshal(at)
	if err != nil {
		w.t.Fatal(err)
	}
	report := make(chan string, 1)
	if w.Harm == nil {
		time.AfterFunc(span, func() { report <- "" })
		return report
	}
	ctx, cancel := context.WithTimeout(context.Background(), span+30*time.Second)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), asAttacker+"="+w.Name, aim+"="+string(text))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := elsewhere(cmd.Start); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer cancel()
		if err := cmd.Wait(); err != nil {
			fmt.Fprintf(&out, "(%v)", err)
		}
		report <- strings.TrimSpace(out.String())
	}()
	return report
}

// elsewhere calls a function on a thread of the last processor. A process that it starts stays there. In the
// short form many attacks run beside each other, and it makes no difference.
func elsewhere(f func() error) error {
	if !long() || runtime.NumCPU() < 2 {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var was, last unix.CPUSet
	if err := unix.SchedGetaffinity(0, &was); err != nil {
		return err
	}
	last.Set(runtime.NumCPU() - 1)
	if err := unix.SchedSetaffinity(0, &last); err != nil {
		return err
	}
	defer func() { _ = unix.SchedSetaffinity(0, &was) }() // it was so before
	return f()
}

// memory is what the system says of the relay's, in bytes.
func (w *world) memory(key string) int64 {
	w.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.relay.Cmd.Process.Pid))
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				w.t.Fatal(err)
			}
			return kib << 10
		}
	}
	w.t.Fatalf("the system does not tell %s", key)
	return 0
}

// forgetPeak begins to look for the relay's highest memory anew.
func (w *world) forgetPeak() {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.relay.Cmd.Process.Pid), []byte("5"), 0); err != nil {
		w.t.Fatal(err)
	}
}
