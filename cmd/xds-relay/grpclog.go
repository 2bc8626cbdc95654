package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// grpcLog is gRPC's logger on top of ours. gRPC's warnings are for debugging,
// because the relay itself logs what becomes of its streams. Only clients that
// cannot connect would otherwise not be in the log at all.
type grpcLog struct {
	log     *slog.Logger
	refused throttle
}

// failedHandshake is how gRPC says that a connection came to nothing: plaintext
// where TLS is spoken or the other way round, or a certificate that is not good.
const failedHandshake = "failed to create ServerTransport"

// failedTLS is part of it for a TLS handshake, and tooLate for one that took too long. The relay
// logs these itself.
const (
	failedTLS = "ServerHandshake("
	tooLate   = "i/o timeout"
)

// refusedEvery is how often clients that cannot connect are logged. They come
// back for ever, and anybody may connect.
const refusedEvery = 10 * time.Second

func (g *grpcLog) debug(message string) {
	message = line(message)
	if !strings.Contains(message, failedHandshake) || strings.Contains(message, failedTLS) || strings.Contains(message, tooLate) {
		g.log.Debug(message)
		return
	}
	if more, ok := g.refused.allow(time.Now()); ok {
		_, reason, _ := strings.Cut(message, failedHandshake)
		g.log.Warn("a client could not connect: its connection ended before it spoke HTTP/2",
			"err", strings.TrimLeft(reason, ": "), "more_since_last", more)
	}
}

// throttle lets one thing through in refusedEvery, and counts the others.
type throttle struct {
	mu   sync.Mutex
	next time.Time
	held int
}

func (t *throttle) allow(now time.Time) (held int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.next) {
		t.held++
		return 0, false
	}
	held, t.held, t.next = t.held, 0, now.Add(refusedEvery)
	return held, true
}

func (g *grpcLog) Info(args ...any)                    { g.debug(fmt.Sprint(args...)) }
func (g *grpcLog) Infoln(args ...any)                  { g.debug(fmt.Sprintln(args...)) }
func (g *grpcLog) Infof(format string, args ...any)    { g.debug(fmt.Sprintf(format, args...)) }
func (g *grpcLog) Warning(args ...any)                 { g.debug(fmt.Sprint(args...)) }
func (g *grpcLog) Warningln(args ...any)               { g.debug(fmt.Sprintln(args...)) }
func (g *grpcLog) Warningf(format string, args ...any) { g.debug(fmt.Sprintf(format, args...)) }
func (g *grpcLog) Error(args ...any)                   { g.log.Warn(line(fmt.Sprint(args...))) }
func (g *grpcLog) Errorln(args ...any)                 { g.log.Warn(line(fmt.Sprintln(args...))) }
func (g *grpcLog) Errorf(format string, args ...any)   { g.log.Warn(line(fmt.Sprintf(format, args...))) }

func (g *grpcLog) Fatal(args ...any)                 { g.fatal(fmt.Sprint(args...)) }
func (g *grpcLog) Fatalln(args ...any)               { g.fatal(fmt.Sprintln(args...)) }
func (g *grpcLog) Fatalf(format string, args ...any) { g.fatal(fmt.Sprintf(format, args...)) }

// V reports whether a verbosity is logged.
func (g *grpcLog) V(int) bool { return false }

func (g *grpcLog) fatal(message string) {
	g.log.Error(line(message))
	os.Exit(exitFailure)
}

func line(message string) string { return strings.TrimRight(message, "\n") }
