package envoy

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/xds-relay/xds-relay/internal/admin"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/e2e/loopback"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// relayed is a relay that runs in this process. It can be closed and started again, on
// the same address.
type relayed struct {
	t    testing.TB
	addr string
	sets []string
	log  *logbook
	now  *relay.Relay
	// metrics are of all the times that it ran.
	metrics *admin.Metrics
}

// quickBackoff reconnects faster than a relay should.
var quickBackoff = []string{"upstream.backoff.initial=100ms", "upstream.backoff.max=500ms"}

// startRelay runs a relay until the test ends. Each set is a key=value of the
// configuration.
func startRelay(t testing.TB, instance, upstream string, sets ...string) *relayed {
	t.Helper()
	r := &relayed{t: t, addr: loopback.Reserve(t), log: newLogbook(t, instance), metrics: admin.NewMetrics(admin.ReadBuild("test"))}
	r.sets = slices.Concat([]string{"upstream.address=" + upstream, "instance=" + instance}, quickBackoff, sets)
	t.Cleanup(r.Close)
	r.Start()
	return r
}

// Start starts the relay, again if it was closed.
func (r *relayed) Start() {
	r.t.Helper()
	c, err := config.Load("", r.sets)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.now, err = relay.New(c, relay.Options{Log: slog.New(slog.NewTextHandler(r.log, nil)), Upstream: r.metrics, Downstream: r.metrics}); err != nil {
		r.t.Fatal(err)
	}
	l, err := net.Listen("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.now.Serve(l)
}

// Close ends it at once. It may be called twice.
func (r *relayed) Close() {
	if r.now != nil {
		r.now.Close(0)
		r.now = nil
	}
}

// nacks is how many responses its clients have rejected, as its metrics say.
func (r *relayed) nacks() (n int) {
	r.t.Helper()
	page := httptest.NewRecorder()
	h := admin.NewHandler(r.now, r.metrics, admin.HandlerOptions{Log: slog.New(slog.DiscardHandler)})
	h.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "http://localhost/metrics", nil))
	if page.Code != http.StatusOK {
		r.t.Fatalf("the metrics: %d %s", page.Code, page.Body)
	}
	for line := range strings.Lines(page.Body.String()) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.HasPrefix(series, `xds_relay_requests_total{kind="nack",`) {
			continue
		}
		more, err := strconv.Atoi(value)
		if err != nil {
			r.t.Fatalf("the metrics: %s", line)
		}
		n += more
	}
	return n
}

// logbook keeps the end of what a relay logs, and shows it if the test fails.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func newLogbook(t testing.TB, name string) *logbook {
	l := &logbook{}
	t.Cleanup(func() {
		if t.Failed() {
			text := l.String()
			t.Logf("the end of the log of the relay %s:\n%s", name, text[max(0, len(text)-8<<10):])
		}
	})
	return l
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// process is a relay's own binary, which can be killed and started again, on the same
// address and with the same files.
type process struct {
	t     testing.TB
	addr  string
	admin string // a socket's path
	args  []string
	log   *logbook
	cmd   *exec.Cmd
	ended chan struct{}
}

// startProcess runs the binary until the test ends.
func startProcess(t testing.TB, upstream string, sets ...string) *process {
	t.Helper()
	dir, err := os.MkdirTemp("", "relay") // short: the name of a socket may have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, addr: loopback.Reserve(t), admin: filepath.Join(dir, "admin"), log: newLogbook(t, "process")}
	p.args = []string{"serve", "--upstream", upstream, "--listen", p.addr, "--admin", "unix://" + p.admin}
	for _, set := range slices.Concat(quickBackoff, sets) {
		p.args = append(p.args, "--set", set)
	}
	t.Cleanup(func() {
		p.Kill()
		os.RemoveAll(dir)
		if text := p.log.String(); strings.Contains(text, "panic:") || strings.Contains(text, "fatal error:") {
			t.Errorf("the relay said:\n%s", text)
		}
	})
	p.Start()
	return p
}

// Start starts it and waits until it listens.
func (p *process) Start() {
	p.t.Helper()
	p.cmd = exec.Command(binary(p.t), p.args...)
	p.cmd.Stderr = p.log
	p.cmd.SysProcAttr = dieWithTest()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	cmd, ended := p.cmd, make(chan struct{})
	p.ended = ended
	go func() {
		_ = cmd.Wait() // it was killed
		close(ended)
	}()
	var d net.Dialer
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "unix", p.admin)
	}}}
	eventually(p.t, patience, func() error {
		resp, err := client.Get("http://localhost/livez")
		if err == nil {
			resp.Body.Close()
		}
		return err
	})
}

// Kill ends it as a crash would. It may be called twice.
func (p *process) Kill() {
	if p.cmd == nil || p.cmd.Process == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // it may be gone
	<-p.ended
	p.cmd = nil
}
