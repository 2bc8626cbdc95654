package main

import (
	"log/slog"
	"os"

	"google.golang.org/grpc/grpclog"

	"github.com/xds-relay/xds-relay/internal/config"
)

// newLog is the log on standard error.
func newLog(c config.Log) *slog.Logger {
	levels := map[config.LogLevel]slog.Level{
		config.LogLevelDebug: slog.LevelDebug, config.LogLevelInfo: slog.LevelInfo,
		config.LogLevelWarn: slog.LevelWarn, config.LogLevelError: slog.LevelError,
	}
	o := &slog.HandlerOptions{Level: levels[c.Level]}
	if c.Format == config.LogFormatText || c.Format == config.LogFormatAuto && isTerminal(os.Stderr) {
		return slog.New(slog.NewTextHandler(os.Stderr, o))
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, o))
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
