//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/xds-relay/xds-relay/bench/internal/broadcast"
	"github.com/xds-relay/xds-relay/bench/internal/control"
	"github.com/xds-relay/xds-relay/bench/internal/load"
	"github.com/xds-relay/xds-relay/bench/internal/process"
)

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
func (c *contender) start(ctx context.Context, relayArgs []string) (s *server, err error) {
	s = &server{target: load.Target{Name: c.label}}
	relayArgs = slices.Concat(relayArgs, c.args)
	if c.secured != nil {
		relayArgs = append(relayArgs, c.secured.args()...)
		s.target.TLS = c.secured.client
	}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	switch c.kind {
	case "relay", "chain":
		origin, at, err := startOrigin("")
		if err != nil {
			return nil, err
		}
		s.close = append(s.close, origin.Stop)
		s.target.Source, s.target.Origin = origin, at
		if c.kind == "chain" {
			if at, err = s.relay(ctx, c.program, at, append(relayArgs, "--set", "instance=bench-upper")); err != nil {
				return nil, err
			}
		}
		_, err = s.relay(ctx, c.program, at, append(relayArgs, "--set", "instance=bench"))
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
	if err := s.run(ctx, address, c.program, "--kind", c.kind, "--listen", address, "--control", controlled); err != nil {
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
func (s *server) relay(ctx context.Context, program, upstream string, more []string) (address string, err error) {
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
	return address, s.run(ctx, address, program, args...)
}

func (s *server) run(ctx context.Context, address, program string, args ...string) error {
	p, err := process.Start(s.target.Name, program, args...)
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
