package origin

import (
	"context"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/xds-relay/xds-relay/downstream"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/hop"
)

// Options are what a Server needs.
type Options struct {
	// Name is what it calls itself, beside the relay's instance.
	Name string
	// Session is how the relay serves its own clients.
	Session session.Config
}

// Server is the relay's own server, in memory. Its methods may be called from any goroutine.
type Server struct {
	server *downstream.Server
	pipe   *pipe
	work   sync.WaitGroup
}

// The relay's own bounds hold for its clients; these are for the relay.
const (
	maxNames   = 1 << 30
	maxName    = 1 << 20
	maxRequest = 1 << 30
)

// NewServer starts a Server. Until Open it cannot be reached.
func NewServer(o Options, groups session.Groups) *Server {
	c := o.Session
	c.Hop = hop.NewID(o.Name)
	c.NeverSynthesize, c.WarmingHold, c.MaxResponse = nil, 0, 0 // these are for the relay's clients
	c.MaxNames, c.MaxRelayNames, c.MaxName = maxNames, maxNames, maxName
	s := &Server{pipe: newPipe()}
	s.server = downstream.NewServer(downstream.ServerConfig{
		Config: c, Groups: groups, Credentials: insecure.NewCredentials(), MaxRequest: maxRequest,
		Log: slog.New(slog.DiscardHandler), // its one client is the relay, which has a log
	})
	s.work.Go(func() { _ = s.server.Serve(s.pipe) }) // it ends with Close
	return s
}

// Open lets the relay connect.
func (s *Server) Open() {
	s.server.SetReady(true)
	s.pipe.open()
}

// Dial is the way to it.
func (s *Server) Dial(ctx context.Context, _ string) (net.Conn, error) { return s.pipe.dial(ctx) }

// Close ends all streams.
func (s *Server) Close() {
	s.server.Close(0)
	s.work.Wait()
}
