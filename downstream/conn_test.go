package downstream

import (
	"log/slog"
	"net"
	"testing"

	"google.golang.org/grpc/credentials/insecure"
)

// TestHangUpSparesNeighbours: a connection with another stream stays open, whether or not the
// stalled stream is unregistered by then.
func TestHangUpSparesNeighbours(t *testing.T) {
	s := NewServer(ServerConfig{Credentials: insecure.NewCredentials(), Log: slog.New(slog.DiscardHandler), MaxRequest: 1 << 20})
	defer s.Close(0)
	relay, client := net.Pipe()
	defer client.Close()
	c := &closing{Conn: relay}
	shared := newConn(c, s.doors)
	stalled, neighbour := &stream{conn: shared}, &stream{conn: shared}
	for _, st := range []*stream{stalled, neighbour} {
		if end := s.register(st); end != nil {
			t.Fatal(end)
		}
	}
	s.hangUp(stalled)
	s.unregister(stalled)
	s.hangUp(stalled)
	if c.closed {
		t.Error("a connection was closed that carries another stream")
	}
	s.unregister(neighbour)
	s.hangUp(stalled)
	if !c.closed {
		t.Error("a connection that carries nothing was not closed")
	}
}

type closing struct {
	net.Conn
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return c.Conn.Close()
}
