package console

import (
	"strings"
	"testing"
	"time"
)

// nasty has what steers terminals: an escape sequence, its form in one character, a new line, a bell, a mark that turns
// the direction of writing, a zero-width space, and bytes that are no UTF-8.
const nasty = "a\x1b[2J\u009b2J\nb\t\x07\u202ec\u200b\xff\x7f"

// steering reports whether a text, other than by the end of its lines, does something to a terminal.
func steering(s string) bool {
	return strings.ContainsAny(s, "\x1b\u009b\x07\t\u202e\u200b\x7f") || strings.Contains(s, "\xff")
}

func TestClean(t *testing.T) {
	if got, want := Clean(nasty), `a\x1b[2J\u009b2J\nb\t\x07\u202ec\u200b\xff\x7f`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, s := range []string{"outbound|80||a.b.svc", "xdstp://a/b?c=d", "Zürich 東京", "\uFFFD", ""} {
		if got := Clean(s); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
	if got := Lines("a\r\n\tb\x1b\n\n"); len(got) != 2 || got[0] != "a" || got[1] != `    b\x1b` {
		t.Errorf("%q", got)
	}
	if got := Short("abcdef", 4); got != "abc…" {
		t.Errorf("%q", got)
	}
}

// TestNothingSteers: whatever is written has no control characters but the ends of lines.
func TestNothingSteers(t *testing.T) {
	var out strings.Builder
	table := NewTable("  ", "NAME")
	table.Row(nasty, nasty)
	changes, err := Differences([]byte(`{"a\u001b": "\u009b"}`), []byte(`{"a\u001b": "\u202e", "b": ["\u200b"]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		out.WriteString(c.String() + "\n")
	}
	if err := table.Write(&out); err != nil {
		t.Fatal(err)
	}
	if err := WriteJSON(&out, map[string]string{nasty: nasty}); err != nil {
		t.Fatal(err)
	}
	if err := WriteYAML(&out, map[string]string{nasty: nasty}); err != nil {
		t.Fatal(err)
	}
	if steering(out.String()) {
		t.Errorf("%q", out.String())
	}
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 90 * time.Second: "90s", 3 * time.Minute: "3m", time.Hour: "1h", 2*time.Hour + 5*time.Minute: "2h5m", 75 * time.Hour: "3d3h", 48 * time.Hour: "2d",
	} {
		if got := For(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	now := time.Unix(1000, 0)
	if got := Ago(now.Add(-12*time.Second), now); got != "12s ago" {
		t.Error(got)
	}
	if got := Ago(time.Time{}, now); got != "never" {
		t.Error(got)
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		if got := Count(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	if got := Things(1, "client") + ", " + Things(0, "client") + ", " + Bytes(1536) + ", " + Bytes(3<<30); got != "1 client, 0 clients, 1.5 KiB, 3.0 GiB" {
		t.Error(got)
	}
}
