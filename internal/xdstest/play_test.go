package xdstest_test

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"testing"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
	"github.com/xds-relay/xds-relay/internal/xdstest"
)

// calm are the settings without which nothing would be heard until time passes.
var calm = []string{"upstream.coalesce_window=0s", "timers.settle=0s", "admin.listen=", "downstream.drain=0s"}

// TestOverGRPC plays every transcript against a whole relay, over real gRPC in a
// bubble of virtual time.
func TestOverGRPC(t *testing.T) { playAll(t, xdstest.Live(startRelay)) }

// playAll plays the transcripts of every section of the protocol.
func playAll(t *testing.T, newPlayer xdstest.NewPlayer) {
	sections, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range sections {
		if name := filepath.Base(dir); name != "self" {
			t.Run(name, func(t *testing.T) { xdstest.RunDir(t, dir, newPlayer) })
		}
	}
}

func startRelay(set []string, dial func(context.Context, string) (net.Conn, error), listen net.Listener) (func(), error) {
	c, err := config.Load("", slices.Concat(calm, set))
	if err != nil {
		return nil, err
	}
	r, err := relay.New(c, relay.Options{Dial: dial, Random: func() float64 { return 0.5 }})
	if err != nil {
		return nil, err
	}
	r.Serve(listen)
	return func() { r.Close(0) }, nil
}
