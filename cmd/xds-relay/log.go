package main

import (
	"log/slog"
	"os"

	"google.golang.org/grpc/grpclog"

	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/logging"
)

// newLog is the log on standard error.
func newLog(c config.Log) *logging.Log {
	return logging.New(logging.Options{Out: os.Stderr, Level: logLevel(c), Text: logsText(c)})
}

// setLog changes what may be changed of a log.
func setLog(log *logging.Log, c config.Log) {
	log.Level.Set(logLevel(c))
	log.SetText(logsText(c))
}

func logLevel(c config.Log) slog.Level {
	return map[config.LogLevel]slog.Level{
		config.LogLevelDebug: slog.LevelDebug, config.LogLevelInfo: slog.LevelInfo,
		config.LogLevelWarn: slog.LevelWarn, config.LogLevelError: slog.LevelError,
	}[c.Level]
}

func logsText(c config.Log) bool {
	return c.Format == config.LogFormatText || c.Format == config.LogFormatAuto && isTerminal(os.Stderr)
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
