package admin

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

// Server is the HTTP server of a handler.
type Server struct {
	http *http.Server
	done chan struct{}
}

// maxConns is how many connections a listener has at once: an open one must not use up
// the file descriptors that clients need. More wait until others close.
const maxConns = 1024

// Serve answers on a listener until Close.
func Serve(l net.Listener, h http.Handler, log *slog.Logger) *Server {
	s := &Server{
		http: &http.Server{
			Handler:           h,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      time.Minute,
			IdleTimeout:       time.Minute,
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		},
		done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(netutil.LimitListener(l, maxConns)); !errors.Is(err, http.ErrServerClosed) {
			log.Error("HTTP listener failed", "listener", l.Addr().String(), "err", err)
		}
	}()
	return s
}

// Close stops at once.
func (s *Server) Close() {
	s.http.Close()
	<-s.done
}
