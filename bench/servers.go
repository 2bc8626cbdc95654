//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/xds-relay/xds-relay/bench/internal/broadcast"
	"github.com/xds-relay/xds-relay/bench/internal/control"
	"github.com/xds-relay/xds-relay/bench/internal/load"
	"github.com/xds-relay/xds-relay/bench/internal/process"
)

// The servers that the bench can start by itself: those of bench/peers, a relay, and
// a relay behind a relay.
var startable = []string{"floor", "floor-fixed", "relay", "chain", "linear", "snapshot", "mux"}

// programs are the binaries of the servers.
type programs struct{ relay, peers string }

// build builds what the servers need, from the tree that the bench is run in.
func build(ctx context.Context, servers []string) (p programs, err error) {
	bin, err := filepath.Abs("bin")
	if err != nil {
		return p, err
	}
	p = programs{relay: filepath.Join(bin, "xds-relay"), peers: filepath.Join(bin, "xds-peers")}
	var relay, peers bool
	for _, s := range servers {
		if !slices.Contains(startable, s) {
			return p, fmt.Errorf("no such server: %q: there are %s", s, strings.Join(startable, ", "))
		}
		if s == "relay" || s == "chain" {
			relay = true
		} else {
			peers = true
		}
	}
	if _, err := os.Stat("go.mod"); err != nil {
		return p, errors.New("servers are built from source: run the bench in the root of the repository, or give --server")
	}
	if relay {
		if err := process.Build(ctx, ".", "./cmd/xds-relay", p.relay); err != nil {
			return p, err
		}
	}
	if peers {
		return p, process.Build(ctx, "bench/peers", ".", p.peers)
	}
	return p, nil
}

// server is a server under test that was started here, and what it needs.
type server struct {
	target    load.Target
	processes []*process.Process
	close     []func()
}

// Stop ends it all.
func (s *server) Stop() {
	for _, f := range s.close {
		f()
	}
	for _, p := range slices.Backward(s.processes) {
		p.Stop()
	}
}

// Output is the end of what the server has written.
func (s *server) Output() string {
	var all []string
	for _, p := range s.processes {
		all = append(all, p.Output())
	}
	return strings.Join(all, "")
}

// start starts a server with nothing to serve yet.
func (p programs) start(ctx context.Context, name string, relayArgs []string) (s *server, err error) {
	s = &server{target: load.Target{Name: name}}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	switch name {
	case "relay", "chain":
		origin, at, err := startOrigin("")
		if err != nil {
			return nil, err
		}
		s.close = append(s.close, origin.Stop)
		s.target.Source, s.target.Origin = origin, at
		if name == "chain" {
			if at, err = s.relay(ctx, p, at, append(relayArgs, "--set", "instance=bench-upper")); err != nil {
				return nil, err
			}
		}
		_, err = s.relay(ctx, p, at, append(relayArgs, "--set", "instance=bench"))
		return s, err
	}
	address, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	controlled, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	if err := s.run(ctx, address, name, p.peers, "--kind", name, "--listen", address, "--control", controlled); err != nil {
		return nil, err
	}
	remote, err := control.Dial(controlled)
	if err != nil {
		return nil, err
	}
	s.close = append(s.close, func() { remote.Close() })
	s.target.Source = remote
	return s, nil
}

// relay starts one, which is the target.
func (s *server) relay(ctx context.Context, p programs, upstream string, more []string) (address string, err error) {
	if address, err = process.FreeAddress(); err != nil {
		return "", err
	}
	admin, err := process.FreeAddress()
	if err != nil {
		return "", err
	}
	args := append([]string{
		"serve", "--upstream", upstream, "--listen", address, "--admin", admin, "--log-level", "warn",
		"--set", "upstream.max_receive_bytes=256MiB", // the origin sends all of a world in one response
	}, more...)
	s.target.Metrics = "http://" + admin + "/metrics"
	return address, s.run(ctx, address, s.target.Name, p.relay, args...)
}

func (s *server) run(ctx context.Context, address, name, program string, args ...string) error {
	p, err := process.Start(name, program, args...)
	if err != nil {
		return err
	}
	s.processes = append(s.processes, p)
	s.target.Address, s.target.Pid = address, p.Pid()
	return p.Await(ctx, address)
}

// startOrigin starts the control plane behind a relay, in this process.
func startOrigin(address string) (*broadcast.Server, string, error) {
	if address == "" {
		var err error
		if address, err = process.FreeAddress(); err != nil {
			return nil, "", err
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, "", fmt.Errorf("--origin: %w", err)
	}
	origin := broadcast.NewOrigin()
	// It ends when it is stopped; a relay that cannot reach it says so.
	go func() { _ = origin.Serve(l) }()
	return origin, l.Addr().String(), nil
}
