package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Relay is the relay's binary. It can be killed and started again, on the same addresses
// and with the same files.
type Relay struct {
	*Process

	// Addr and Admin are where it listens: host:port, or the path of a socket.
	Addr, Admin string
	Args, Env   []string
	// Program is its binary; empty: that of this checkout.
	Program string
	// In starts it in circumstances of the test's own; nil: as Start does.
	In func(start func() error) error

	t    testing.TB
	http *http.Client
}

// patience is how long a relay may take to start, on a busy machine with the race
// detector.
const patience = time.Minute

// QuickBackoff are settings with which a relay reconnects sooner than it should. What
// ERR-2 demands stays: at most one attempt a second after a stream that had answered.
var QuickBackoff = []string{"upstream.backoff.initial=100ms", "upstream.backoff.max=500ms"}

// NewRelay returns a relay that does not run yet: `serve` with further arguments, which
// have to say where it listens, and with settings.
func NewRelay(t testing.TB, addr, admin string, args []string, sets ...string) *Relay {
	r := &Relay{t: t, Addr: addr, Admin: admin, Args: append([]string{"serve"}, args...)}
	for _, set := range sets {
		r.Args = append(r.Args, "--set", set)
	}
	var d net.Dialer
	r.http = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, Family(r.Admin), r.Admin)
		},
	}}
	return r
}

// Family is that of an address: one that begins with a slash is a socket's path.
func Family(addr string) string {
	if strings.HasPrefix(addr, "/") {
		return "unix"
	}
	return "tcp"
}

// Target is an address as gRPC, and the relay, write it.
func Target(addr string) string {
	if Family(addr) == "unix" {
		return "unix://" + addr
	}
	return addr
}

// Start starts it, for the first time or again, and returns how long it took until it was
// ready.
func (r *Relay) Start() time.Duration {
	r.t.Helper()
	begin := time.Now()
	program := r.Program
	if program == "" {
		program = Binary(r.t)
	}
	cmd := exec.Command(program, r.Args...)
	cmd.Env = slices.Concat(os.Environ(), r.Env)
	if in := r.In; in != nil {
		r.Process = StartBy(r.t, cmd, in)
	} else {
		r.Process = Start(r.t, cmd)
	}
	Eventually(r.t, patience, func() error {
		if r.Gone() {
			r.t.Fatalf("the relay has ended: %v\n%s", r.Ended(), r.Output)
		}
		_, err := r.Page("/readyz")
		return err
	})
	return time.Since(begin)
}

// Get asks its admin endpoint.
func (r *Relay) Get(path string) (code int, body string, err error) {
	resp, err := r.http.Get("http://localhost" + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// Page is Get, where anything but OK is an error.
func (r *Relay) Page(path string) (body string, err error) {
	code, body, err := r.Get(path)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s answers %d: %s", path, code, body)
	}
	return body, err
}

// Metrics are the series of /metrics, labels and all.
type Metrics map[string]float64

// Metrics fail the test if they cannot be had.
func (r *Relay) Metrics() Metrics {
	r.t.Helper()
	m, err := r.Scrape()
	if err != nil {
		r.t.Fatalf("metrics: %v", err)
	}
	return m
}

// Scrape asks for the metrics.
func (r *Relay) Scrape() (Metrics, error) {
	body, err := r.Page("/metrics")
	if err != nil {
		return nil, err
	}
	return ParseMetrics(body), nil
}

// ParseMetrics reads what /metrics says.
func ParseMetrics(text string) Metrics {
	m := make(Metrics)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if v, err := strconv.ParseFloat(line[i+1:], 64); err == nil {
			m[line[:i]] = v
		}
	}
	return m
}

// Sum adds up the series of a name whose labels contain all of these.
func (m Metrics) Sum(name string, labels ...string) (total float64) {
	for series, v := range m {
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		if !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(series, l) }) {
			total += v
		}
	}
	return total
}

// Resident is its resident memory in bytes, on Linux.
func (r *Relay) Resident() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("the system does not tell a process's VmRSS")
}
