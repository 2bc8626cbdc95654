package admin

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/xds-relay/xds-relay/internal/descriptors"
)

// Server is the server of a Face.
type Server struct {
	http  *http.Server
	tools *services // nil: no gRPC
	done  chan struct{}
}

// callsPerConnection bounds the HTTP/2 streams of a connection. A tool has a few.
const callsPerConnection = 32

// Serve shows a face on a listener until Close. Its connections are bounded: open ones must not use up
// the file descriptors that clients need.
func Serve(l net.Listener, f *Face, log *slog.Logger) *Server {
	c := newCrowd(l, descriptors.ForHTTP(descriptors.Limit()))
	s := &Server{
		http: &http.Server{
			Handler:           f,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      time.Minute,
			IdleTimeout:       time.Minute,
			MaxHeaderBytes:    16 << 10,
			ConnState:         c.changed,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		},
		tools: f.tools,
		done:  make(chan struct{}),
	}
	if f.tools != nil {
		s.http.Protocols = new(http.Protocols)
		s.http.Protocols.SetHTTP1(true)
		s.http.Protocols.SetUnencryptedHTTP2(true)
		s.http.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: callsPerConnection}
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(c); !errors.Is(err, http.ErrServerClosed) {
			log.Error("HTTP listener failed", "listener", l.Addr().String(), "err", err)
		}
	}()
	return s
}

// Close stops at once.
func (s *Server) Close() {
	s.http.Close()
	<-s.done
	if s.tools != nil {
		s.tools.close()
	}
}
