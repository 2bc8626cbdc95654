package consul

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// example is what the relay runs from, as it stands.
const example = root + "/deploy/examples/consul/relay.yaml"

// relay is the real binary. It can be killed and started again, on the same addresses
// and with the same files.
type relay struct {
	t           testing.TB
	addr, admin string
	dir         string // of its snapshot
	env, sets   []string
	p           *process
}

// startRelay starts one from the example, before a control plane at an address.
func startRelay(t testing.TB, upstream string, sets ...string) *relay {
	t.Helper()
	dir := t.TempDir()
	key := filepath.Join(dir, "snapshot.key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &relay{t: t, addr: loopback(port(t)), admin: loopback(port(t)), dir: filepath.Join(dir, "state"), sets: sets}
	r.env = []string{
		"XDS_UPSTREAM=" + upstream, "XDS_LISTEN=" + r.addr, "ADMIN_LISTEN=" + r.admin,
		"STATE_DIR=" + r.dir, "SNAPSHOT_KEY=" + key,
	}
	r.Start()
	return r
}

// Start starts it, for the first time or again, and returns when it is ready.
func (r *relay) Start() {
	r.t.Helper()
	args := []string{"serve", "-c", example}
	for _, set := range r.sets {
		args = append(args, "--set", set)
	}
	cmd := exec.Command(theRelay(r.t), args...)
	cmd.Env = append(os.Environ(), r.env...)
	r.p = start(r.t, cmd)
	eventually(r.t, func() error {
		if r.p.gone() {
			r.t.Fatalf("the relay has ended: %v\n%s", r.p.err, r.p.output)
		}
		_, err := r.get("/readyz")
		return err
	})
}

// Kill ends it as a crash would.
func (r *relay) Kill() { r.p.kill() }

func (r *relay) get(path string) (string, error) {
	c := &http.Client{Timeout: 5 * time.Second}
	resp, err := c.Get("http://" + r.admin + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", path, resp.Status, text)
	}
	return string(text), err
}

// state is all that the relay has written to disk.
func (r *relay) state() (text string) {
	r.t.Helper()
	files, err := os.ReadDir(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(r.dir, f.Name()))
		if err != nil {
			r.t.Fatal(err)
		}
		text += string(b)
	}
	if text == "" {
		r.t.Fatalf("there is no snapshot in %s", r.dir)
	}
	return text
}

// metric adds up the series of a name whose labels contain all of these.
func (r *relay) metric(name string, labels ...string) (total float64) {
	r.t.Helper()
	text, err := r.get("/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		series, value, ok := cutLast(strings.TrimSpace(line), " ")
		has := ok && (series == name || strings.HasPrefix(series, name+"{"))
		for _, l := range labels {
			has = has && strings.Contains(series, l)
		}
		if v, err := strconv.ParseFloat(value, 64); has && err == nil {
			total += v
		}
	}
	return total
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// says complains unless the relay has logged a text.
func says(r *relay, text string) error {
	if !strings.Contains(r.p.output.String(), text) {
		return fmt.Errorf("the relay does not say %q", text)
	}
	return nil
}
