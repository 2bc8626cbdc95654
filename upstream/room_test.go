package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// TestManyGroups: more groups than the server takes streams on one connection are all
// served, whether the limit is known or has to be learned, and there is room on each
// connection to ask whether anybody is there (UP-1).
func TestManyGroups(t *testing.T) {
	const groups = 300
	for _, test := range []struct {
		limit       uint32
		connections int // that it takes, or a few more while the limit is being learned
		spare       int
	}{{100, 4, 0}, {20, 16, 4}} {
		t.Run(fmt.Sprintf("%d streams a connection", test.limit), func(t *testing.T) {
			p := serve(t, loopback(t), nil, grpc.MaxConcurrentStreams(test.limit))
			p.answer = true
			var f freezer
			var log lines
			conn := reach(t, Endpoint{
				Target: "passthrough:///" + p.address, Dial: f.dial, MaxStreams: 100, MaxConnections: 64,
				RoomWithin: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil)),
			})
			ctx, cancel := context.WithCancel(context.Background())
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			lane := fanout.Lane{Type: cache.Cluster}
			var hubs []*fanout.Hub
			for range groups {
				hub := fanout.NewHub(fanout.Config{})
				hub.Subscribe(lane.Type, fanout.NewSubscriber(func() {})).Delta([]string{"a"}, nil, time.Now())
				hubs = append(hubs, hub)
				client := NewClient(session.Config{
					Entries: []session.Entry{{Name: "up"}}, Coalesce: time.Millisecond, Missing: time.Minute, UnavailableAfter: time.Minute,
					Backoff: session.Backoff{Initial: 10 * time.Millisecond, Max: 10 * time.Millisecond, Factor: 1},
				}, ClientOptions{Conns: []*Conn{conn}, Hub: hub, Log: slog.New(slog.DiscardHandler)})
				running.Go(func() { client.Run(ctx) })
			}
			until(t, "every group has what it asked for, and a stream", func() bool {
				return p.open() == groups && !slices.ContainsFunc(hubs, func(h *fanout.Hub) bool { return !h.On(lane).Has("a") })
			})
			if n := f.dialled(); n < test.connections || n > test.connections+test.spare {
				t.Errorf("%d connections", n)
			}
			learned := log.count("streams=20")
			if known := test.limit == 100; known != (learned == 0) {
				t.Errorf("logged: %v", log.all)
			}
			for _, s := range some(conn) {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				_, err := healthpb.NewHealthClient(s.on.channel).Check(ctx, &healthpb.HealthCheckRequest{})
				cancel()
				if status.Code(err) != codes.Unimplemented {
					t.Error(err)
				}
			}
		})
	}
}

// some is a stream on each of the connections that there are.
func some(c *Conn) (streams []*seat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, on := range c.places.all {
		if i := slices.IndexFunc(on.seats, func(s *seat) bool { return s.begun }); i >= 0 {
			streams = append(streams, on.seats[i])
		}
	}
	return streams
}

// TestNoRoom: when all connections are full, the rest is told why, in time, and the others
// notice nothing (UP-1).
func TestNoRoom(t *testing.T) {
	for _, test := range []struct {
		name                 string
		limit                uint32
		connections, streams int
		room                 int
	}{
		{"as configured", 100, 2, 5, 8},
		{"as the server allows", 4, 2, 100, 6},
		{"none at all", 0, 2, 100, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := loopback(t)
			p := &peerServer{}
			if test.limit == 0 {
				barren(t, l)
			} else {
				p = serve(t, l, nil, grpc.MaxConcurrentStreams(test.limit))
			}
			c := reach(t, Endpoint{Target: l.Addr().String(), MaxConnections: test.connections, MaxStreams: test.streams, RoomWithin: 2 * time.Second})
			const groups = 12
			ctx, cancel := context.WithCancel(context.Background())
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			refused := make(chan error, 1000)
			moved := make(chan error, 1000)
			for n := range groups {
				running.Go(func() {
					for {
						s, err := c.open(ctx, n, ads, session.Main, false, nil, nil)
						if err != nil {
							refused <- err
							return
						}
						for err == nil {
							_, err = s.receive()
						}
						s.leave()
						if !errors.Is(err, errMoved) {
							return
						}
						moved <- err
					}
				})
			}
			for range groups - test.room {
				err := wait(t, refused)
				end, reason := Ending(err)
				if end.Kind != session.EndNoRoom || reason != "no_room" || !strings.Contains(end.Message, "upstream.max_connections") {
					t.Errorf("%v: %+v %q", err, end, reason)
				}
			}
			until(t, "the others have their streams", func() bool { return p.open() == test.room })
			if len(refused) > 0 || test.limit > 20 && p.begun.Load() != int64(test.room) {
				t.Errorf("%d streams were opened, %d refused", p.begun.Load(), len(refused))
			}
		})
	}
}

// TestRoomGoesToWhoWaits: a place that is given back is taken at once.
func TestRoomGoesToWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 16)
		p := serve(t, l, nil)
		c := reach(t, Endpoint{
			Target: "passthrough:///up", MaxConnections: 1, MaxStreams: 2,
			Dial: func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
		})
		first, _ := open(t, c, 1)
		begin := time.Now()
		var waiting sync.WaitGroup
		waiting.Go(func() { open(t, c, 2) })
		synctest.Wait()
		if n := p.begun.Load(); n != 1 {
			t.Errorf("%d streams", n)
		}
		first.seat.end()
		waiting.Wait()
		synctest.Wait()
		if n, took := p.begun.Load(), time.Since(begin); n != 2 || took > 0 {
			t.Errorf("%d streams after %v", n, took)
		}
	})
}

// answers says that every name exists that is subscribed to.
func (p *peerServer) answers(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	body, err := anypb.New(wrapperspb.String("a"))
	if err != nil {
		return err
	}
	for {
		req, err := s.Recv()
		if err != nil {
			return err
		}
		resp := &discovery.DeltaDiscoveryResponse{TypeUrl: req.GetTypeUrl(), Nonce: "1"}
		for _, name := range req.GetResourceNamesSubscribe() {
			resp.Resources = append(resp.Resources, &discovery.Resource{Name: name, Version: "1", Resource: body})
		}
		if len(resp.Resources) > 0 {
			body.TypeUrl = req.GetTypeUrl()
			if err := s.Send(resp); err != nil {
				return err
			}
		}
	}
}

// barren accepts HTTP/2 connections on which no stream may begin.
func barren(t *testing.T, l net.Listener) {
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				framer := http2.NewFramer(conn, conn)
				if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
					return
				}
				err := framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams})
				for err == nil {
					var f http2.Frame
					f, err = framer.ReadFrame()
					if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
						err = framer.WriteSettingsAck()
					}
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() })
}
