package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/logging"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// TestReloadOfAnEmptyFile: a file that sets nothing is refused, and not read as all defaults.
func TestReloadOfAnEmptyFile(t *testing.T) {
	a := newChanging(t)
	r := serveFile(t, "upstream: {address: '"+a.address+"'}\n")
	for _, text := range []string{"", " \n\n", "# log: {level: debug}\n"} {
		if code, body := r.reload(text); code != http.StatusBadRequest || !strings.Contains(body, "the file sets nothing") {
			t.Errorf("%q: %d %s", text, code, body)
		}
	}
	if r.metric("xds_relay_config_last_reload_successful") != 0 {
		t.Error("the metric says that it was loaded")
	}
	r.end()
}

// TestReloadOfAChangeDuringTheStart: what changes while the relay starts is not missed.
func TestReloadOfAChangeDuringTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load := func() (*config.Config, error) { return config.Load(path, nil) }
	write("reload_on_change: true\ntimers: {settle: 10ms}\n")
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	r, err := relay.New(c, relay.Options{}) // which takes its time, with a large snapshot
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(0)
	write("reload_on_change: true\ntimers: {settle: 20ms}\n")
	l := startReloading(r, path, load, make(chan os.Signal), logging.New(logging.Options{Out: os.Stderr}), nil, nil)
	defer l.stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 300 {
		if r.Config().Timers.Settle == 20*time.Millisecond {
			return
		}
		<-tick.C
	}
	t.Error("the change was missed")
}
