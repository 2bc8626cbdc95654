package logging

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
)

// Options say what a log looks like.
type Options struct {
	// Out is written one line at a time.
	Out io.Writer
	// Level is the least severity that is written at first.
	Level slog.Level
	// Text is for people; else the log is JSON.
	Text bool
}

// Log is a log and what may be changed about it.
type Log struct {
	*slog.Logger
	// Level may be set at any time.
	Level *slog.LevelVar

	text    *atomic.Bool
	sampler *sampler
}

// New returns a log. Close it in the end, or lines that are held back are not accounted for.
func New(o Options) *Log {
	level := new(slog.LevelVar)
	level.Set(o.Level)
	text := new(atomic.Bool)
	text.Store(o.Text)
	h := form{text, newText(o.Out, level), slog.NewJSONHandler(o.Out, &slog.HandlerOptions{Level: level})}
	s := newSampler(defaults)
	return &Log{Logger: slog.New(s.before(h)), Level: level, text: text, sampler: s}
}

// SetText changes between the form for people and JSON. It may be called at any time.
func (l *Log) SetText(text bool) { l.text.Store(text) }

// Close writes what is held back. What is logged afterwards is written as it comes.
func (l *Log) Close() { l.sampler.close() }

// levels are the severities as the configuration calls them.
var levels = []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}

// ParseLevel reads a severity; its error says which there are.
func ParseLevel(s string) (slog.Level, error) {
	for _, l := range levels {
		if Name(l) == s {
			return l, nil
		}
	}
	return 0, fmt.Errorf("level is %q; use debug, info, warn or error", s)
}

// Name is a severity as the configuration calls it.
func Name(l slog.Level) string { return strings.ToLower(l.String()) }
