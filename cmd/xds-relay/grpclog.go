package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// grpcLog is gRPC's logger on top of ours.
type grpcLog struct{ log *slog.Logger }

func (g *grpcLog) Info(args ...any)                 { g.log.Debug(line(fmt.Sprint(args...))) }
func (g *grpcLog) Infoln(args ...any)               { g.log.Debug(line(fmt.Sprintln(args...))) }
func (g *grpcLog) Infof(format string, args ...any) { g.log.Debug(line(fmt.Sprintf(format, args...))) }
func (g *grpcLog) Warning(args ...any)              { g.log.Debug(line(fmt.Sprint(args...))) }
func (g *grpcLog) Warningln(args ...any)            { g.log.Debug(line(fmt.Sprintln(args...))) }
func (g *grpcLog) Warningf(format string, args ...any) {
	g.log.Debug(line(fmt.Sprintf(format, args...)))
}
func (g *grpcLog) Error(args ...any)                 { g.log.Warn(line(fmt.Sprint(args...))) }
func (g *grpcLog) Errorln(args ...any)               { g.log.Warn(line(fmt.Sprintln(args...))) }
func (g *grpcLog) Errorf(format string, args ...any) { g.log.Warn(line(fmt.Sprintf(format, args...))) }

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
