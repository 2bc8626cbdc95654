package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/xds-relay/xds-relay/internal/relay"
)

// cutShort: a second signal has ended the process, before the shutdown that the first one
// began was over.
type cutShort struct{ signal os.Signal }

func (e *cutShort) Error() string { return fmt.Sprintf("ended by a second signal, %v", e.signal) }

// code is the exit code that shells show for a process that a signal has ended. The
// signal's own default action would not do: as the first process of a container nobody
// is ended by it.
func (e *cutShort) code() int {
	if n, ok := e.signal.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return exitFailure
}

// terminations are the signals that end serve, from now on. There is room for two, so
// that a second signal is not lost while the first one is handled.
func terminations() (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	return signals, func() { signal.Stop(signals) }
}

// sameSignal is how long after the first signal others count as the same one. A supervisor and the
// terminal may both pass a signal on, or one of them may send two kinds: nobody has lost patience yet.
const sameSignal = time.Second

// shutDown drains the relay. A further signal cuts that short, unless it comes within sameSignal.
func shutDown(r *relay.Relay, first os.Signal, signals <-chan os.Signal, log *slog.Logger) error {
	begin, c := time.Now(), r.Config()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		r.Drain(drainDelay(first, r.Count(), c.Downstream.DrainDelay), c.Downstream.Drain)
	}()
	for {
		select {
		case <-drained:
			log.Info("stopped", "dur_ms", time.Since(begin).Milliseconds())
			return nil
		case second := <-signals:
			took := time.Since(begin)
			if took < sameSignal {
				log.Info("another signal within a second of the first: the two count as one", "signal", second.String(), "dur_ms", took.Milliseconds())
				continue
			}
			log.Warn("second signal: ending at once; clients that are left lose their connections", "signal", second.String(), "clients", r.Count(), "dur_ms", took.Milliseconds())
			return &cutShort{second}
		}
	}
}

// drainDelay is how long a relay goes on serving after the signal, while it reports that it
// is not ready. Load balancers may send it a client during that time even if it has none,
// so SIGTERM, which Kubernetes and systemd send, always waits. After Ctrl-C (SIGINT) at a
// terminal the relay waits only if it has clients.
func drainDelay(s os.Signal, clients int, delay time.Duration) time.Duration {
	if s == os.Interrupt && clients == 0 {
		return 0
	}
	return delay
}

// awaitEnd waits for the first signal, or for ctx to end.
func awaitEnd(ctx context.Context, signals <-chan os.Signal) os.Signal {
	select {
	case s := <-signals:
		return s
	case <-ctx.Done():
		return syscall.SIGTERM
	}
}
