package console

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Clean returns a text in one line, with everything as an escape that is not to be printed.
func Clean(s string) string {
	if !strings.ContainsFunc(s, hidden) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !hidden(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// hidden reports whether a character may not be printed: it is a control character, a separator of lines, or has no
// picture of its own.
func hidden(r rune) bool { return !unicode.IsPrint(r) }

// Lines are those of a text, each of them clean.
func Lines(s string) []string {
	lines := strings.Split(strings.TrimRight(s, "\r\n"), "\n")
	for i, line := range lines {
		lines[i] = Clean(strings.ReplaceAll(strings.TrimRight(line, "\r"), "\t", "    "))
	}
	return lines
}

// Short cuts a clean text to so many characters.
func Short(s string, most int) string {
	if s = Clean(s); utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// For is a duration as people say it, in its largest two units: 12s, 3m, 2h5m, 4d3h.
func For(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Second:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	large, small, l, s := time.Hour, time.Minute, "h", "m"
	if d >= 24*time.Hour {
		large, small, l, s = 24*time.Hour, time.Hour, "d", "h"
	}
	text := fmt.Sprintf("%d%s", d/large, l)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf("%d%s", rest, s)
	}
	return text
}

// Ago is how long before now a time was: "12s ago", or "never" for the zero time.
func Ago(at, now time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return For(now.Sub(at)) + " ago"
}

// Count is a number with its thousands marked, and Bytes one of bytes in the unit that fits.
func Count[N int | int64](n N) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Bytes is a number of bytes in the unit that fits.
func Bytes(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// Things counts something whose plural has an s: "1 client", "2 clients".
func Things(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return Count(n) + " " + thing
}
