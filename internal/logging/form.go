package logging

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// form is a log in one of two forms, between which it may change at any time.
type form struct {
	isText     *atomic.Bool
	text, json slog.Handler
}

func (f form) current() slog.Handler {
	if f.isText.Load() {
		return f.text
	}
	return f.json
}

// Enabled implements slog.Handler.
func (f form) Enabled(ctx context.Context, l slog.Level) bool { return f.current().Enabled(ctx, l) }

// Handle implements slog.Handler.
func (f form) Handle(ctx context.Context, r slog.Record) error { return f.current().Handle(ctx, r) }

// WithAttrs implements slog.Handler.
func (f form) WithAttrs(attrs []slog.Attr) slog.Handler {
	return form{f.isText, f.text.WithAttrs(attrs), f.json.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (f form) WithGroup(name string) slog.Handler {
	return form{f.isText, f.text.WithGroup(name), f.json.WithGroup(name)}
}
