package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/internal/health"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// supervisor is the service manager that has started the relay, which systemd is if it has set
// NOTIFY_SOCKET (sd_notify(3)). The zero value is nobody, and is told nothing.
type supervisor struct {
	socket string
	// every is how often it wants a sign of life; 0: never.
	every time.Duration
	log   *slog.Logger
}

func newSupervisor(log *slog.Logger) supervisor {
	s := supervisor{socket: os.Getenv("NOTIFY_SOCKET"), log: log}
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return s // the watchdog is for another process
	}
	if usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 {
		s.every = time.Duration(usec) * time.Microsecond / 3 // one may be late
	}
	return s
}

// attend watches for a supervisor until it is ended, also while the relay shuts down.
func attend(s supervisor, r *relay.Relay) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { s.watch(ctx, r) })
	return func() {
		cancel()
		work.Wait()
	}
}

// watch tells it that the relay has started, once it listens, and then how it is, until ctx ends.
// A control plane that is away, or types that are not there yet, do not keep a unit from starting: whoever
// starts after it would wait, and systemd would start it again and again. While the relay's own watchdog says
// that it is stuck there is no sign of life, and systemd ends it with SIGABRT, upon which the log gets all
// stacks, and starts it again.
func (s supervisor) watch(ctx context.Context, r *relay.Relay) {
	if s.socket == "" {
		return
	}
	s.tell("READY=1\n" + statusLine(r))
	if s.every == 0 {
		return
	}
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		if ok, _ := health.Verdict(r.Liveness()); ok {
			s.tell("WATCHDOG=1\n" + statusLine(r))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// statusLine is what systemctl status shows.
func statusLine(r *relay.Relay) string {
	if ready, why := r.Ready(); !ready {
		return fmt.Sprintf("STATUS=%d clients; not ready: %s", r.Count(), why)
	}
	return fmt.Sprintf("STATUS=%d clients; ready", r.Count())
}

// tell sends a message. If that fails, systemd acts as if nothing was sent, and the log says why.
func (s supervisor) tell(message string) {
	if s.socket == "" {
		return
	}
	c, err := net.Dial("unixgram", s.socket) // a name that begins with @ is an abstract one
	if err == nil {
		_, err = c.Write([]byte(message))
		_ = c.Close()
	}
	if err != nil {
		s.log.Warn("systemd cannot be told how the relay is, and may restart it; look at NOTIFY_SOCKET, and NotifyAccess= of the unit", "err", err)
	}
}
