// Command peers is the servers that the relay is measured against: the caches of
// go-control-plane, each behind its own server, and a bare broadcaster, the floor. They
// are as their authors made them, with default options; nothing in them is tuned but
// what a flag says. They are for loopback: no TLS, no authentication.
//
//	peers --kind linear --listen 127.0.0.1:18100 --control 127.0.0.1:18101
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/xds-relay/xds-relay/bench/internal/broadcast"
	"github.com/xds-relay/xds-relay/bench/internal/control"
)

func main() {
	kind := flag.String("kind", "floor", "what to serve with: "+strings.Join(kinds, ", "))
	listen := flag.String("listen", "", "the address for clients")
	controlled := flag.String("control", "", "the address for the load generator")
	flag.Parse()
	if err := run(*kind, *listen, *controlled); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

var kinds = []string{"floor", "floor-fixed", "linear", "snapshot", "mux"}

// server is a server under test.
type server interface {
	control.Source
	Serve(net.Listener) error
}

func newServer(kind string) (server, error) {
	switch kind {
	case "floor":
		return broadcast.New(), nil
	case "floor-fixed":
		// Fixed windows, and so no ping after each message to estimate them.
		return broadcast.New(grpc.InitialWindowSize(65536), grpc.InitialConnWindowSize(65536)), nil
	case "linear":
		return newServing(&linear{}), nil
	case "mux":
		return newServing(&linear{muxed: true}), nil
	case "snapshot":
		return newServing(newSnapshots()), nil
	}
	return nil, fmt.Errorf("no such kind: %q: there are %s", kind, strings.Join(kinds, ", "))
}

func run(kind, listen, controlled string) error {
	s, err := newServer(kind)
	if err != nil {
		return err
	}
	clients, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	commands, err := net.Listen("tcp", controlled)
	if err != nil {
		return fmt.Errorf("--control: %w", err)
	}
	failed := make(chan error, 2)
	go func() { failed <- s.Serve(clients) }()
	go func() { failed <- control.Serve(commands, s) }()
	return <-failed
}

// serving is go-control-plane's server over a cache that can be given a world.
type serving struct {
	cache
	grpc *grpc.Server
}

func newServing(c cache) *serving {
	s := &serving{cache: c, grpc: grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))}
	discovery.RegisterAggregatedDiscoveryServiceServer(s.grpc, c.server())
	return s
}

// Serve implements server.
func (s *serving) Serve(l net.Listener) error { return s.grpc.Serve(l) }

var errNoWorld = errors.New("a step of no world")
