package relay

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// TestGzipBetweenRelays: what a relay with downstream.gzip sends to a relay below is compressed, and
// upstream.max_receive_bytes there bounds what it is inflated to.
func TestGzipBetweenRelays(t *testing.T) {
	const size = 3 << 20
	inWorld(t, []string{"downstream.gzip=true"}, func(w *world) {
		var log logText
		below := w.below(&log, "upstream.max_receive_bytes=4MiB")
		c := w.open(below.dial(), "c", false)
		synctest.Wait()
		w.respond("CDS a@1%s", strings.Repeat("x", size))
		synctest.Wait()
		if got := c.version("a"); got != versionOf(t, cache.Cluster, "a@1"+strings.Repeat("x", size)) {
			t.Errorf("the client has a@%q", got)
		}
		if read := below.read.Load(); read > size/10 {
			t.Errorf("the relay below has read %d bytes for %d", read, size)
		}
		w.respond("CDS b@1%s", strings.Repeat("x", 5<<20))
		synctest.Wait()
		if log.count("received message after decompression larger than max 4194304") == 0 {
			t.Errorf("the relay below does not say that the response is too large:\n%s", log.text.String())
		}
		if c.version("b") != "" {
			t.Error("the relay below takes in what is too large")
		}
		below.stop()
	})
}

// lower is a relay below that of a world.
type lower struct {
	world *world
	net   *xdstest.Network
	relay *Relay
	read  atomic.Int64 // bytes from above
}

func (w *world) below(log *logText, set ...string) *lower {
	w.t.Helper()
	c, err := config.Load("", append([]string{"upstream.coalesce_window=0s", "timers.settle=0s"}, set...))
	if err != nil {
		w.t.Fatal(err)
	}
	l := &lower{world: w, net: xdstest.NewNetwork()}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := w.down.Dial(ctx, address)
		if err != nil {
			return nil, err
		}
		return metered{conn, &l.read}, nil
	}
	if l.relay, err = New(c, Options{Dial: dial, Log: slog.New(slog.NewTextHandler(log, nil))}); err != nil {
		w.t.Fatal(err)
	}
	l.relay.Serve(l.net.Listener())
	return l
}

func (l *lower) dial() *grpc.ClientConn {
	l.world.t.Helper()
	conn, err := grpc.NewClient("passthrough:///relay", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.net.Dial(ctx, "") }))
	if err != nil {
		l.world.t.Fatal(err)
	}
	l.world.conns = append(l.world.conns, conn)
	return conn
}

func (l *lower) stop() {
	for _, conn := range l.world.conns {
		conn.Close()
	}
	l.relay.Close(0)
}

// metered counts what a connection reads.
type metered struct {
	net.Conn
	read *atomic.Int64
}

func (m metered) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	m.read.Add(int64(n))
	return n, err
}
