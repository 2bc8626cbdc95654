//go:build linux

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// process is a program that this test has started. It dies with the test, however
// the test dies.
type process struct {
	cmd    *exec.Cmd
	ending atomic.Bool   // it is to end
	ended  chan struct{} // closed after Wait
	err    error         // of Wait
	output *output
}

// runIn starts a program in a network of its own; nil is everybody's. What it says on
// standard error is kept, and looked through for what no process may ever say.
func runIn(t testing.TB, n *namespace, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, ended: make(chan struct{}), output: &output{}}
	cmd.Stderr = p.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := n.do(cmd.Start); err != nil {
		t.Fatalf("start %s: %v", filepath.Base(cmd.Path), err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		if !p.ending.Load() && p.gone() {
			t.Errorf("%s has ended by itself: %v\n%s", filepath.Base(cmd.Path), p.err, p.output)
		}
		p.kill()
		if alarm := p.output.alarm(); alarm != "" {
			t.Errorf("%s said:\n%s", filepath.Base(cmd.Path), alarm)
		}
	})
	return p
}

// signal sends a signal to the process, if it still runs.
func (p *process) signal(s syscall.Signal) {
	if !p.gone() {
		_ = syscall.Kill(p.cmd.Process.Pid, s) // it may have ended just now
	}
}

func (p *process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill ends it as a crash would, and waits until it is gone.
func (p *process) kill() {
	p.ending.Store(true)
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// output is the end of what a process has said.
type output struct {
	mu     sync.Mutex
	last   []byte
	alarms []byte
}

const keepOutput = 32 << 10

// alarming is what no process may say.
var alarming = []string{"DATA RACE", "panic:", "fatal error:"}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = append(o.last, b...)
	if len(o.alarms) > 0 {
		o.alarms = append(o.alarms, b[:min(len(b), max(0, keepOutput-len(o.alarms)))]...)
	} else {
		for _, what := range alarming {
			if i := strings.Index(string(o.last), what); i >= 0 {
				o.alarms = append(o.alarms, o.last[i:]...)
				break
			}
		}
	}
	if len(o.last) > 2*keepOutput {
		o.last = append([]byte(nil), o.last[len(o.last)-keepOutput:]...)
	}
	return len(b), nil
}

func (o *output) alarm() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.alarms)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.last)
}

// reserved are the ports that some test has been given.
var reserved sync.Map

// reserve finds a TCP port that nobody has. It is not one of those that the system
// gives to whoever dials: a client that dials a port while its owner is dead could
// be given that very port to dial from, and then meet itself.
func reserve(t testing.TB) string {
	t.Helper()
	for range 1000 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(15000+rand.IntN(15000)))
		if _, given := reserved.LoadOrStore(addr, true); given {
			continue
		}
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

// upstream is the control plane's process as the test sees it. It can be killed and
// started again, with the world as it is then.
type upstream struct {
	t    testing.TB
	h    *history
	addr string
	in   *namespace // where it runs
	// certs is orders.Certs.
	certs string
	// followers are other control planes of the same world; they learn of each step
	// as this one does.
	followers []*upstream

	mu    sync.Mutex // held to send a command, so that steps stay in order
	p     *process
	stdin io.WriteCloser
	said  chan said
}

func startUpstream(t testing.TB, h *history) *upstream {
	t.Helper()
	return startUpstreamIn(t, h, nil, reserve(t))
}

// startUpstreamIn starts one at an address of a network.
func startUpstreamIn(t testing.TB, h *history, n *namespace, addr string) *upstream {
	t.Helper()
	u := &upstream{t: t, h: h, addr: addr, in: n}
	u.Start(false)
	return u
}

// Start starts it, empty if asked, and returns when it accepts.
func (u *upstream) Start(empty bool) {
	u.t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	text, err := json.Marshal(orders{World: u.h.world, Step: u.h.Step(), Listen: u.addr, Empty: empty, Certs: u.certs})
	if err != nil {
		u.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asControlPlane+"="+string(text))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		u.t.Fatal(err)
	}
	r, w := io.Pipe()
	cmd.Stdout = w
	p := runIn(u.t, u.in, cmd)
	u.p, u.stdin = p, stdin
	events := make(chan said, 1)
	u.said = events
	go func() {
		<-p.ended
		w.Close()
	}()
	go func() {
		defer close(events)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			var s said
			if json.Unmarshal(lines.Bytes(), &s) == nil {
				events <- s
			}
		}
	}()
	if s := u.listen(events); s.Event != "listening" {
		u.t.Fatalf("the control plane does not listen:\n%s", u.p.output)
	}
}

func (u *upstream) listen(events chan said) said {
	select {
	case s := <-events:
		return s
	case <-time.After(patience):
		return said{}
	}
}

// Kill ends it at once.
func (u *upstream) Kill() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stdin == nil {
		return
	}
	u.p.kill()
	u.stdin.Close()
	u.stdin = nil
}

// command sends a command, if there is somebody to send it to.
func (u *upstream) command(text string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.write(text)
}

func (u *upstream) write(text string) bool {
	if u.stdin == nil {
		return false
	}
	_, err := io.WriteString(u.stdin, text+"\n")
	return err == nil
}

// Step takes a step of the world, and tells the control plane, if it runs.
func (u *upstream) Step() {
	u.mu.Lock()
	defer u.mu.Unlock()
	step := fmt.Sprintf("%s %d", cmdStep, u.h.advance())
	u.write(step)
	for _, f := range u.followers {
		f.command(step)
	}
}

// Stats are what it has seen since it was started.
func (u *upstream) Stats() cpStats {
	u.t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.write(cmdStats) {
		u.t.Fatal("the control plane does not run: it cannot say what it has seen")
	}
	s := u.listen(u.said)
	if s.Event != "stats" {
		u.t.Fatalf("the control plane does not say what it has seen:\n%s", u.p.output)
	}
	return s.cpStats
}

// Churn takes steps at a rate until stop is called; more than once is fine.
func (u *upstream) Churn(perSecond int) (stop func()) {
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		begin := time.Now()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			for ; n < int(time.Since(begin).Seconds()*float64(perSecond)); n++ {
				u.Step()
			}
		}
	})
	stop = sync.OnceFunc(func() {
		close(done)
		work.Wait()
	})
	u.t.Cleanup(stop)
	return stop
}

// relay is the real binary. It can be killed and started again, on the same
// addresses and with the same files.
type relay struct {
	t           testing.TB
	addr, admin string     // host:port, or the path of a socket
	in          *namespace // where it runs
	args, env   []string
	p           *process
	http        *http.Client
}

// newRelay returns a relay that does not run yet. Its back-off is capped at 1 s, as
// the targets have it.
func newRelay(t testing.TB, upstream string, sets ...string) *relay {
	t.Helper()
	r := &relay{t: t, addr: reserve(t), admin: reserve(t)}
	r.configure(upstream, r.addr, r.admin, sets...)
	return r
}

// newRelayIn returns a relay that is to run in a network of its own, and is reached
// through sockets in the file system, which are of no network.
func newRelayIn(t testing.TB, n *namespace, upstream string, sets ...string) *relay {
	t.Helper()
	dir, err := os.MkdirTemp("", "relay") // a short one: the name of a socket may have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &relay{t: t, in: n, addr: filepath.Join(dir, "xds"), admin: filepath.Join(dir, "admin")}
	r.configure(upstream, "unix://"+r.addr, "unix://"+r.admin, sets...)
	return r
}

func (r *relay) configure(upstream, listen, admin string, sets ...string) {
	var d net.Dialer
	r.http = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, family(r.admin), r.admin)
		},
	}}
	r.args = []string{"serve", "--upstream", upstream, "--listen", listen, "--admin", admin, "--log-level", "warn"}
	for _, set := range append([]string{"upstream.backoff.initial=200ms", "upstream.backoff.max=1s"}, sets...) {
		r.args = append(r.args, "--set", set)
	}
}

// family is that of an address: one that begins with a slash is a socket's path.
func family(addr string) string {
	if strings.HasPrefix(addr, "/") {
		return "unix"
	}
	return "tcp"
}

// target is the relay's address as gRPC writes it.
func (r *relay) target() string {
	if family(r.addr) == "unix" {
		return "unix://" + r.addr
	}
	return r.addr
}

func startRelay(t testing.TB, upstream string, sets ...string) *relay {
	t.Helper()
	r := newRelay(t, upstream, sets...)
	r.Start()
	return r
}

// Start starts it and returns how long it took until it was ready.
func (r *relay) Start() time.Duration {
	r.t.Helper()
	begin := time.Now()
	cmd := exec.Command(binary, r.args...)
	cmd.Env = append(os.Environ(), r.env...)
	r.p = runIn(r.t, r.in, cmd)
	eventually(r.t, func() error {
		if r.p.gone() {
			r.t.Fatalf("the relay has ended: %v\n%s", r.p.err, r.p.output)
		}
		code, _, err := r.get("/readyz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("/readyz answers %d", code)
		}
		return err
	})
	return time.Since(begin)
}

func (r *relay) get(path string) (code int, body string, err error) {
	resp, err := r.http.Get("http://localhost" + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// metrics are the series of /metrics, labels and all.
type metrics map[string]float64

func (r *relay) metrics() metrics {
	r.t.Helper()
	m, err := r.scrape()
	if err != nil {
		r.t.Fatalf("metrics: %v", err)
	}
	return m
}

func (r *relay) scrape() (metrics, error) {
	_, body, err := r.get("/metrics")
	if err != nil {
		return nil, err
	}
	m := make(metrics)
	for line := range strings.Lines(body) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if ok {
			series += "}"
		} else {
			series, value, _ = strings.Cut(strings.TrimSpace(line), " ")
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(line, "#") {
			m[series] = v
		}
	}
	return m, nil
}

// sum adds up the series of a name whose labels contain all of these.
func (m metrics) sum(name string, labels ...string) (total float64) {
	for series, v := range maps.All(m) {
		has := series == name || strings.HasPrefix(series, name+"{")
		for _, l := range labels {
			has = has && strings.Contains(series, l)
		}
		if has {
			total += v
		}
	}
	return total
}

// rss is the relay's resident memory, in bytes.
func (r *relay) rss() int64 {
	r.t.Helper()
	n, err := r.resident()
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *relay) resident() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.p.cmd.Process.Pid))
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

// patience is how long anything may take that has no limit of its own.
const patience = 60 * time.Second

// pollEvery is how often eventually looks.
const pollEvery = 5 * time.Millisecond

// eventually waits until missing returns nil, and tells how long that took.
func eventually(t testing.TB, missing func() error) time.Duration {
	t.Helper()
	return within(t, patience, missing)
}

// within is eventually for what may take another time.
func within(t testing.TB, patience time.Duration, missing func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	for {
		look := time.Now()
		err := missing()
		if err == nil {
			return time.Since(begin)
		}
		if time.Since(begin) > patience {
			t.Fatalf("after %v: %v", patience, err)
		}
		pause(context.Background(), max(pollEvery, 2*time.Since(look)))
	}
}

// pause lets time pass that the scenario itself needs; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
