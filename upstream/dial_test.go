package upstream

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"
)

// TestUnacknowledged: a dead connection is noticed before a name counts as missing (UP-13).
func TestUnacknowledged(t *testing.T) {
	for missing, want := range map[time.Duration]time.Duration{
		0: 10 * time.Second, 30 * time.Second: 10 * time.Second, 15 * time.Second: 10 * time.Second,
		12 * time.Second: 8 * time.Second, 3 * time.Second: 2 * time.Second,
	} {
		if got := unacknowledged(missing); got != want {
			t.Errorf("dne_timeout %v: %v, want %v", missing, got, want)
		}
	}
}

// TestPings: a control plane that does not like to be pinged so often is pinged half as
// often from then on, on new connections too, and one that does not answer is given up
// sooner than a name counts as missing (UP-13).
func TestPings(t *testing.T) {
	t.Run("too many", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var log lines
			l := bufconn.Listen(1 << 16)
			serve(t, l, nil, grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 15 * time.Second}))
			c := reach(t, Endpoint{
				Target: "passthrough:///up", Keepalive: 10 * time.Second, Log: slog.New(slog.NewTextHandler(&log, nil)),
				Dial: func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
			})
			_, ended := open(t, c, 1)
			_, otherEnded := open(t, c, 2)
			lost(t, ended)
			lost(t, otherEnded)
			if n := log.count("keepalive=20s"); n != 1 {
				t.Errorf("it was logged %d times: %v", n, log.all)
			}
			_, ended = open(t, c, 1)
			time.Sleep(time.Hour)
			if len(ended) > 0 || len(log.all) != 1 {
				t.Errorf("%v", log.all)
			}
		})
	})
	t.Run("not answered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := bufconn.Listen(1 << 16)
			serve(t, l, nil)
			var f freezer
			c := reach(t, Endpoint{
				Target: "passthrough:///up", Keepalive: 20 * time.Second, Missing: 9 * time.Second,
				Dial: func(ctx context.Context, _ string) (net.Conn, error) {
					conn, err := l.DialContext(ctx)
					if err != nil {
						return nil, err
					}
					return f.wrap(conn), nil
				},
			})
			_, ended := open(t, c, 1)
			synctest.Wait()
			f.freeze()
			began := time.Now()
			lost(t, ended)
			if took := time.Since(began); took > 26*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	})
}
