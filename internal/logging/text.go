package logging

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/xds-relay/xds-relay/cache"
)

// text is a log for people: the time of day, the level, a sentence, and the fields that
// matter to people. Types go by their short names.
type text struct {
	level slog.Leveler
	out   *output
	own   string // fields of this logger, as they are written
	group string // before the names of fields
}

// output is shared by all loggers.
type output struct {
	mu sync.Mutex
	w  io.Writer
}

// untold are fields that tell people nothing: the sentence says where it comes from.
var untold = []string{"component"}

func newText(w io.Writer, level slog.Leveler) *text { return &text{level: level, out: &output{w: w}} }

// Enabled implements slog.Handler.
func (t *text) Enabled(_ context.Context, l slog.Level) bool { return l >= t.level.Level() }

// WithAttrs implements slog.Handler.
func (t *text) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *t
	for _, a := range attrs {
		n.own += field(t.group, a)
	}
	return &n
}

// WithGroup implements slog.Handler.
func (t *text) WithGroup(name string) slog.Handler {
	n := *t
	n.group += name + "."
	return &n
}

// Handle implements slog.Handler.
func (t *text) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	if !r.Time.IsZero() {
		b.WriteString(r.Time.Format("15:04:05.000 "))
	}
	fmt.Fprintf(&b, "%-5s %s", r.Level, plain(r.Message))
	fields := ""
	r.Attrs(func(a slog.Attr) bool {
		fields += field(t.group, a)
		return true
	})
	if fields += t.own; fields != "" {
		b.WriteString(" " + fields)
	}
	b.WriteByte('\n')
	t.out.mu.Lock()
	defer t.out.mu.Unlock()
	_, err := io.WriteString(t.out.w, b.String())
	return err
}

// field is one field with a space before it, or nothing.
func field(group string, a slog.Attr) string {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		all, prefix := "", group
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, one := range v.Group() {
			all += field(prefix, one)
		}
		return all
	}
	s := value(v)
	if s == "" || slices.Contains(untold, a.Key) {
		return ""
	}
	if s != plain(s) || strings.ContainsAny(s, " =\"") {
		s = strconv.Quote(s)
	}
	return " " + group + a.Key + "=" + s
}

// value is a value as people read it.
func value(v slog.Value) string {
	switch t := v.Any().(type) {
	case cache.TypeURL:
		return shortType(t)
	case string:
		return shortType(cache.TypeURL(t))
	case []string:
		return strings.Join(t, ",")
	case nil:
		return ""
	}
	return v.String()
}

// shortType is the short name of a type, and anything else as it is.
func shortType(t cache.TypeURL) string {
	return t.Name()
}

// plain is a text without characters that would move a terminal's cursor or begin
// another line.
func plain(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	return strings.Trim(strconv.Quote(s), `"`)
}
