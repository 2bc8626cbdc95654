package xdstest_test

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/xdstest"
)

// calm are the settings without which nothing would be heard until time passes.
var calm = []string{"upstream.coalesce_window=0s", "timers.settle=0s", "admin.listen=", "downstream.drain=0s"}

// random makes delays come out without their jitter.
func random() float64 { return 0.5 }

// TestOverGRPC plays every transcript against a whole relay, over real gRPC in a
// bubble of virtual time.
func TestOverGRPC(t *testing.T) {
	playAll(t, func(t *testing.T, file string) { xdstest.Run(t, file, xdstest.Live(startRelay)) })
}

// TestPure plays the same transcripts against the pure parts alone.
func TestPure(t *testing.T) {
	playAll(t, func(t *testing.T, file string) {
		if transcript, err := xdstest.Load(file); err == nil && transcript.Edge != "" {
			t.Skipf("needs the edge: %s", transcript.Edge)
		}
		xdstest.Run(t, file, newPure)
	})
}

// playAll plays the transcripts of every section of the protocol.
func playAll(t *testing.T, play func(t *testing.T, file string)) {
	files, err := filepath.Glob("testdata/*/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts (%v)", err)
	}
	for _, file := range files {
		if section := filepath.Base(filepath.Dir(file)); section != "self" {
			claim := strings.TrimSuffix(filepath.Base(file), ".txt")
			t.Run(section+"/"+claim, func(t *testing.T) { play(t, file) })
		}
	}
}

// hopOf is the relay's id on the way of a stream, which has to be the same each time.
func hopOf(c *config.Config) string { return c.InstanceName() + "/0" }

func startRelay(set []string, dial func(context.Context, string) (net.Conn, error), listen net.Listener) (func(), error) {
	c, err := config.Load("", slices.Concat(calm, set))
	if err != nil {
		return nil, err
	}
	r, err := relay.New(c, relay.Options{Hop: hopOf(c), Dial: dial, Random: random})
	if err != nil {
		return nil, err
	}
	r.Serve(listen)
	return func() {
		if broken := r.Check(); len(broken) > 0 {
			panic(strings.Join(broken, "; "))
		}
		r.Close(0)
	}, nil
}
