package e2e

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/relay"
)

// relayed is a relay that runs in this process and listens on loopback.
type relayed struct {
	*relay.Relay
	addr string
	log  *logbook
}

// quickBackoff reconnects faster than a relay should. What ERR-2 demands stays: at
// most one attempt a second after a stream that had answered.
var quickBackoff = []string{"upstream.backoff.initial=100ms", "upstream.backoff.max=500ms"}

// startRelay runs a relay until the test ends. Each set is a key=value of the
// configuration.
func startRelay(t testing.TB, upstream string, sets ...string) *relayed {
	t.Helper()
	return startRelayWith(t, relay.Options{}, upstream, sets...)
}

func startRelayWith(t testing.TB, o relay.Options, upstream string, sets ...string) *relayed {
	t.Helper()
	r := &relayed{log: newLogbook(t)}
	r.Relay = newRelay(t, r.log, o, upstream, sets...)
	r.serveAt(t, "127.0.0.1:0")
	return r
}

// startRelayAt runs one at an address where another one has been.
func startRelayAt(t testing.TB, address, upstream string, sets ...string) *relayed {
	t.Helper()
	r := &relayed{log: newLogbook(t)}
	r.Relay = newRelay(t, r.log, relay.Options{}, upstream, sets...)
	r.serveAt(t, address)
	return r
}

// startExample runs a relay with the configuration of an example in deploy, and sets on top.
func startExample(t testing.TB, name, upstream string, sets ...string) *relayed {
	t.Helper()
	r := &relayed{log: newLogbook(t)}
	r.Relay = newRelayOf(t, r.log, relay.Options{}, "../../deploy/examples/"+name+"/relay.yaml", upstream, sets...)
	r.serveAt(t, "127.0.0.1:0")
	return r
}

func (r *relayed) serveAt(t testing.TB, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	r.Serve(l)
}

// newRelay is a relay that listens nowhere yet.
func newRelay(t testing.TB, log *logbook, o relay.Options, upstream string, sets ...string) *relay.Relay {
	t.Helper()
	return newRelayOf(t, log, o, "", upstream, sets...)
}

// newRelayOf is one with a configuration file.
func newRelayOf(t testing.TB, log *logbook, o relay.Options, file, upstream string, sets ...string) *relay.Relay {
	t.Helper()
	c, err := config.Load(file, append([]string{"upstream.address=" + upstream, "instance=e2e"}, sets...))
	if err != nil {
		t.Fatal(err)
	}
	o.Log = slog.New(log)
	r, err := relay.New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(0) })
	return r
}

// logbook keeps what a relay logs, and shows it if the test fails.
type logbook struct {
	slog.Handler
	shared *logLines
}

type logLines struct {
	mu    sync.Mutex
	lines []string
}

// shown bounds what a failed test prints of a log.
const shown = 60

func newLogbook(t testing.TB) *logbook {
	lines := &logLines{}
	t.Cleanup(func() {
		if t.Failed() {
			all := lines.matching("")
			t.Logf("the relay's log, last of %d lines:\n%s", len(all), strings.Join(all[max(0, len(all)-shown):], ""))
		}
	})
	return &logbook{slog.NewTextHandler(lines, nil), lines}
}

// Write implements io.Writer for the text handler, one line a call.
func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return len(line), nil
}

// matching are the lines that contain every one of the parts.
func (l *logLines) matching(parts ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.lines), func(line string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
	})
}

// Lines are the log lines that contain every one of the parts.
func (l *logbook) Lines(parts ...string) []string { return l.shared.matching(parts...) }

func (l *logbook) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *logbook) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logbook{l.Handler.WithAttrs(attrs), l.shared}
}

func (l *logbook) WithGroup(name string) slog.Handler {
	return &logbook{l.Handler.WithGroup(name), l.shared}
}
