package main

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"

	"google.golang.org/grpc/grpclog"

	"github.com/xds-relay/xds-relay/internal/config"
)

// logSettings are what of the log can be changed while it is written.
type logSettings struct {
	level slog.LevelVar
	text  atomic.Bool
}

func (l *logSettings) set(c config.Log) {
	l.level.Set(map[config.LogLevel]slog.Level{
		config.LogLevelDebug: slog.LevelDebug, config.LogLevelInfo: slog.LevelInfo,
		config.LogLevelWarn: slog.LevelWarn, config.LogLevelError: slog.LevelError,
	}[c.Level])
	l.text.Store(c.Format == config.LogFormatText || c.Format == config.LogFormatAuto && isTerminal(os.Stderr))
}

// newLog is the log on standard error.
func newLog(c config.Log) (*slog.Logger, *logSettings) {
	s := &logSettings{}
	s.set(c)
	o := &slog.HandlerOptions{Level: &s.level}
	return slog.New(either{&s.text, slog.NewTextHandler(os.Stderr, o), slog.NewJSONHandler(os.Stderr, o)}), s
}

// either is a log in one of two forms.
type either struct {
	isText     *atomic.Bool
	text, json slog.Handler
}

func (e either) current() slog.Handler {
	if e.isText.Load() {
		return e.text
	}
	return e.json
}

// Enabled, Handle, WithAttrs and WithGroup implement slog.Handler.
func (e either) Enabled(ctx context.Context, l slog.Level) bool { return e.current().Enabled(ctx, l) }

// Handle writes a line.
func (e either) Handle(ctx context.Context, r slog.Record) error { return e.current().Handle(ctx, r) }

// WithAttrs adds fields in both forms.
func (e either) WithAttrs(attrs []slog.Attr) slog.Handler {
	return either{e.isText, e.text.WithAttrs(attrs), e.json.WithAttrs(attrs)}
}

// WithGroup begins a group of fields in both forms.
func (e either) WithGroup(name string) slog.Handler {
	return either{e.isText, e.text.WithGroup(name), e.json.WithGroup(name)}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// bridgeGRPC sends gRPC's own log to ours, one level lower than gRPC has it: its
// warnings are about single connections.
func bridgeGRPC(log *slog.Logger) {
	grpclog.SetLoggerV2(&grpcLog{log: log.With("component", "grpc")})
}
