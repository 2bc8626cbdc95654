//go:build linux

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	gcptypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"
	gcp "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	gcpserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"github.com/xds-relay/xds-relay/cache"
)

// The control plane is a process of its own: this test binary, started with its
// orders in the environment. It is go-control-plane's Delta server over one
// LinearCache a type. It takes commands on its standard input, one a line, says
// what happens on its standard output, one JSON object a line, and ends when its
// standard input does, so that it never outlives the test.
const asControlPlane = "XDS_RELAY_CHAOS_CONTROL_PLANE"

// orders are what a control plane is started with.
type orders struct {
	World  world
	Step   int // the world that it starts with
	Listen string
	Empty  bool // it has lost everything, until it is told to fill
	// Certs is a directory with its certificate and those whom it trusts, read again for
	// each handshake; empty: plaintext.
	Certs string
}

// The commands. step is followed by the number of the step to be taken.
const (
	cmdStep  = "step"
	cmdFill  = "fill"  // the world as of a step replaces an empty one
	cmdCut   = "cut"   // close all connections, and go on
	cmdStats = "stats" // say what was seen
)

// said is what a control plane says.
type said struct {
	Event   string // listening, or stats
	Address string
	cpStats
}

// cpStats are what a control plane has seen since it was started.
type cpStats struct {
	Streams, Open    int64 // ever, and now
	Responses, Bytes int64
	Resources        int64
	Nacks            int64
	// First is when the first response went out, in ns since 1970; 0: none has.
	First int64
}

// runControlPlane is the process.
func runControlPlane() error {
	var o orders
	if err := json.Unmarshal([]byte(os.Getenv(asControlPlane)), &o); err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	s := &serving{world: o.World, caches: make(map[cache.TypeURL]*gcp.LinearCache)}
	initial := s.resources(o.Step)
	for _, t := range worldTypes {
		if o.Empty {
			initial[t] = nil
		}
		// Versions are made of the content: a control plane that comes back knows by
		// them what the relay has already.
		s.caches[t] = gcp.NewLinearCache(string(t), gcp.WithInitialResources(initial[t]))
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(64 << 20)}
	if o.Certs != "" {
		options = append(options, grpc.Creds(serverCredentials(o.Certs)))
	}
	g := grpc.NewServer(options...)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	discovery.RegisterAggregatedDiscoveryServiceServer(g, gcpserver.NewServer(ctx, s.mux(), s.callbacks()))
	done := make(chan error, 1)
	go func() { done <- g.Serve(&cuttable{Listener: l, serving: s}) }()
	s.say(said{Event: "listening", Address: l.Addr().String()})
	if err := s.obey(os.Stdin); err != nil {
		return err
	}
	g.Stop()
	if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("control plane: %w", err)
	}
	return nil
}

// serving is a control plane from the inside.
type serving struct {
	world  world
	caches map[cache.TypeURL]*gcp.LinearCache

	streams, open, responses, bytes, resourcesSent, nacks, first atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func (s *serving) say(v said) {
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		os.Exit(1) // whoever listened is gone
	}
}

func (s *serving) resources(step int) map[cache.TypeURL]map[string]gcptypes.Resource {
	all := make(map[cache.TypeURL]map[string]gcptypes.Resource)
	for _, t := range worldTypes {
		all[t] = make(map[string]gcptypes.Resource)
	}
	for k, st := range s.world.at(step) {
		if !st.gone {
			all[k.typ][k.name] = s.world.resource(k, st.step)
		}
	}
	return all
}

// obey carries commands out until there are no more.
func (s *serving) obey(commands io.Reader) error {
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		cmd, number, numbered := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(number)
		if numbered && err != nil {
			return fmt.Errorf("control plane: command %q: %w", lines.Text(), err)
		}
		switch cmd {
		case cmdStep:
			if err := s.step(n); err != nil {
				return err
			}
		case cmdFill:
			for t, r := range s.resources(n) {
				if err := s.caches[t].UpdateResources(r, nil); err != nil {
					return err
				}
			}
		case cmdCut:
			s.cut()
		case cmdStats:
			s.say(said{Event: "stats", cpStats: cpStats{
				s.streams.Load(), s.open.Load(), s.responses.Load(), s.bytes.Load(), s.resourcesSent.Load(), s.nacks.Load(), s.first.Load(),
			}})
		default:
			return fmt.Errorf("control plane: no such command: %q", cmd)
		}
	}
	return lines.Err()
}

func (s *serving) step(n int) error {
	set, gone := make(map[cache.TypeURL]map[string]gcptypes.Resource), make(map[cache.TypeURL][]string)
	for _, c := range s.world.changes(n) {
		switch t := c.key.typ; {
		case c.removed:
			gone[t] = append(gone[t], c.key.name)
		case set[t] == nil:
			set[t] = make(map[string]gcptypes.Resource)
			fallthrough
		default:
			set[t][c.key.name] = s.world.resource(c.key, n)
		}
	}
	for t, c := range s.caches {
		if len(set[t])+len(gone[t]) == 0 {
			continue
		}
		if err := c.UpdateResources(set[t], gone[t]); err != nil {
			return err
		}
	}
	return nil
}

func (s *serving) mux() gcp.Cache {
	m := &gcp.MuxCache{
		Classify:      func(r *gcp.Request) string { return r.GetTypeUrl() },
		ClassifyDelta: func(r *gcp.DeltaRequest) string { return r.GetTypeUrl() },
		Caches:        make(map[string]gcp.Cache),
	}
	for t, c := range s.caches {
		m.Caches[string(t)] = c
	}
	return m
}

func (s *serving) callbacks() gcpserver.Callbacks {
	return gcpserver.CallbackFuncs{
		DeltaStreamOpenFunc: func(context.Context, int64, string) error {
			s.streams.Add(1)
			s.open.Add(1)
			return nil
		},
		DeltaStreamClosedFunc: func(int64, *core.Node) { s.open.Add(-1) },
		StreamDeltaRequestFunc: func(_ int64, r *discovery.DeltaDiscoveryRequest) error {
			if r.GetErrorDetail() != nil {
				s.nacks.Add(1)
			}
			return nil
		},
		StreamDeltaResponseFunc: func(_ int64, _ *discovery.DeltaDiscoveryRequest, r *discovery.DeltaDiscoveryResponse) {
			s.first.CompareAndSwap(0, time.Now().UnixNano())
			s.responses.Add(1)
			s.resourcesSent.Add(int64(len(r.GetResources())))
		},
	}
}

// cut closes all connections, as a network does.
func (s *serving) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
	s.conns = nil
}

// cuttable is a listener whose connections can be cut, and are counted.
type cuttable struct {
	net.Listener
	serving *serving
}

func (l *cuttable) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	counted := &countedConn{c, &l.serving.bytes}
	l.serving.mu.Lock()
	defer l.serving.mu.Unlock()
	if l.serving.conns == nil {
		l.serving.conns = make(map[net.Conn]struct{})
	}
	l.serving.conns[counted] = struct{}{}
	return counted, nil
}

type countedConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	return n, err
}
