// Package play plays transcripts against the relay, in tests of any package. OverGRPC
// plays them against a whole relay in a bubble of virtual time; Pure against
// upstream.Core, fanout.Hub and session.Session alone, where the time is a number and a
// transcript takes a millisecond. What only the edge does (Transcript.Edge) is not seen
// by Pure, and that a wake-up is missing only over gRPC.
package play

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/certs"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// Calm are the settings without which nothing would be heard until time passes.
var Calm = []string{"upstream.coalesce_window=0s", "upstream.prefetch=off", "timers.settle=0s", "admin.listen=", "downstream.drain=0s"}

func init() { xdstest.Fingerprint = cache.Fingerprint{}.Of }

// Random makes delays come out without their jitter.
func Random() float64 { return 0.5 }

// hopOf is the relay's id on the way of a stream, which has to be the same each time.
func hopOf(c *config.Config) string { return c.InstanceName() + "/0" }

// OverGRPC plays the transcripts in dir, which is internal/test/xdstest/testdata as seen from
// the test, against a whole relay, over real gRPC in a bubble of virtual time.
func OverGRPC(t *testing.T, dir string) {
	each(t, dir, func(t *testing.T, file string) { xdstest.Run(t, file, xdstest.Live(StartRelay)) })
}

// Pure plays them against the pure parts alone, those that need the edge left out.
func Pure(t *testing.T, dir string) {
	each(t, dir, func(t *testing.T, file string) {
		if transcript, err := xdstest.Load(file); err == nil && transcript.Edge != "" {
			t.Skipf("needs the edge: %s", transcript.Edge)
		}
		xdstest.Run(t, file, newPlayer)
	})
}

// each calls play with the transcripts of every section of the protocol, each in a test
// that is called section/claim.
func each(t *testing.T, dir string, play func(t *testing.T, file string)) {
	files, err := filepath.Glob(filepath.Join(dir, "*/*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts in %s (%v)", dir, err)
	}
	for _, file := range files {
		if section := filepath.Base(filepath.Dir(file)); section != "self" {
			claim := strings.TrimSuffix(filepath.Base(file), ".txt")
			t.Run(section+"/"+claim, func(t *testing.T) { play(t, file) })
		}
	}
}

// Trials is the setting with which types that a control plane has never answered go up alone first
// (UP-21). It is a transcript's only; without it all types count as answered.
const Trials = "trials=on"

// settings splits what a transcript's header sets.
func settings(set []string) (c *config.Config, trials bool, err error) {
	known := slices.DeleteFunc(slices.Clone(set), func(kv string) bool { return kv == Trials })
	c, err = config.Load("", slices.Concat(Calm, known))
	return c, len(known) < len(set), err
}

// StartRelay starts a whole relay, for xdstest.Live.
func StartRelay(set []string, dial func(context.Context, string) (net.Conn, error), listen net.Listener) (xdstest.Relay, error) {
	c, trials, err := settings(set)
	if err != nil {
		return nil, err
	}
	r, err := relay.New(c, relay.Options{Hop: hopOf(c), Dial: dial, Random: Random, NoTrials: !trials, Follow: certs.Options{NoNotify: true}})
	if err != nil {
		return nil, err
	}
	r.Serve(listen)
	return Whole{r}, nil
}

// Whole is a whole relay that runs.
type Whole struct{ *relay.Relay }

// Stop ends it, and fails if something does not hold that has to.
func (r Whole) Stop() {
	if broken := r.Check(); len(broken) > 0 {
		panic(strings.Join(broken, "; "))
	}
	r.Close(0)
}
