package consul

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// example is what the relay runs from, as it stands.
const example = root + "/deploy/examples/consul/relay.yaml"

// relay is one that keeps a snapshot.
type relay struct {
	*peer.Relay
	t   testing.TB
	dir string // of its snapshot
}

// startRelay starts one from the example, before a control plane at an address.
func startRelay(t testing.TB, upstream string, sets ...string) *relay {
	t.Helper()
	dir := t.TempDir()
	key := filepath.Join(dir, "snapshot.key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &relay{t: t, dir: filepath.Join(dir, "state")}
	r.Relay = peer.NewRelay(t, peer.Address(t), peer.Address(t), []string{"-c", example}, sets...)
	r.Env = []string{
		"XDS_UPSTREAM=" + upstream, "XDS_LISTEN=" + r.Addr, "ADMIN_LISTEN=" + r.Admin,
		"STATE_DIR=" + r.dir, "SNAPSHOT_KEY=" + key,
	}
	r.Start()
	return r
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

// says complains unless the relay has logged a text.
func says(r *relay, text string) error {
	if !r.Output.Has(text) {
		return fmt.Errorf("the relay does not say %q", text)
	}
	return nil
}
