package demo

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Colours of a terminal, for the little that is worth one.
const (
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	green  = "\x1b[32m"
	red    = "\x1b[31m"
	normal = "\x1b[0m"
)

// screen draws a state: the picture, the figures, the story.
func screen(s state, width int, color bool) []string {
	paint := func(how, text string) string {
		if !color {
			return text
		}
		return how + text + normal
	}
	// A line is cut before it is painted, for colours have no width.
	var lines []string
	add := func(how, text string) {
		text = cut(text, width)
		if how != "" {
			text = paint(how, text)
		}
		lines = append(lines, text)
	}

	clock := seconds(s.elapsed) + ", Ctrl-C ends it"
	if s.of > 0 {
		clock = seconds(min(s.elapsed, s.of)) + " of " + seconds(s.of) + ", Ctrl-C ends it"
	}
	title := "xds-relay demo"
	add(bold, pad(title, max(len(title)+2, min(width, screenWidth)-len(clock)))+clock)
	add("", "")
	add(bold, picture("control plane", "━━━▶", "relay", "━━━▶", "clients"))
	add("", picture("control plane", "", s.relayAddr, "", fmt.Sprintf("%d Delta, as Envoy speaks", s.delta)))
	add("", picture(s.cpAddr, "", "one process, one cache", "", fmt.Sprintf("%d SotW, as gRPC speaks", s.sotw)))
	health, how := "up, "+plural(s.streams, "stream"), green
	if !s.up {
		health, how = "GONE, "+plural(s.streams, "stream"), red
	}
	last := cut(picture(health, "", "", "", fmt.Sprintf("%d of %d connected", s.connected, s.delta+s.sotw)), width)
	if strings.HasPrefix(last, "  "+health) {
		last = "  " + paint(how, health) + last[len("  "+health):]
	}
	lines = append(lines, last)
	add("", "")

	add(dim, row("", "control plane sent", "clients got", "times"))
	add("", row("responses", count(s.responses), count(s.deliveries), ratio(s.deliveries, s.responses)))
	add("", row("bytes on the wire", size(s.upBytes), size(s.downBytes), ratio(s.downBytes, s.upBytes)))
	add("", "")
	add(dim, row("", "last", "worst", "changes"))
	add("", row("change → last client", span(s.travel.last), span(s.travel.worst), count(int64(s.travel.changes))))
	latest := ""
	if s.travel.latest != "" {
		latest = "; latest change: " + s.travel.latest
	}
	add("", "  client streams lost: "+strconv.FormatInt(s.lost, 10)+latest)
	if s.admin != "" {
		add("", "  admin: "+s.admin)
	}
	add("", "")
	var story []string
	for _, l := range s.lines {
		story = append(story, wrap(l.String(), width)...)
	}
	return append(lines, story[max(0, len(story)-shownLines):]...)
}

// wrap breaks a line of the story between words, and indents what follows.
func wrap(text string, width int) (lines []string) {
	const indent = "         "
	for utf8.RuneCountInString(text) > width {
		head := string([]rune(text)[:max(width, 0)])
		at := strings.LastIndexByte(head, ' ')
		if at <= len(indent) {
			return append(lines, cut(text, width))
		}
		lines = append(lines, strings.TrimRight(text[:at], " "))
		text = indent + text[at+1:]
	}
	return append(lines, text)
}

// screenWidth is what the columns take.
const screenWidth = 80

func picture(a, ab, b, bc, c string) string {
	return strings.TrimRight("  "+pad(a, 18)+pad(ab, 6)+pad(b, 23)+pad(bc, 6)+c, " ")
}

func row(label, a, b, c string) string {
	return fmt.Sprintf("  %-22s%18s%18s%12s", label, a, b, c)
}

// places says where everything listens.
func places(s state) []string {
	lines := []string{
		"control plane  " + s.cpAddr,
		"relay          " + s.relayAddr,
		fmt.Sprintf("clients        %d Delta, %d SotW", s.delta, s.sotw),
	}
	if s.admin != "" {
		lines = append(lines, "admin          "+s.admin)
	}
	return append(lines, "ends           "+ending(s))
}

// ending says how the demo ends.
func ending(s state) string {
	if s.of > 0 {
		return "after " + seconds(s.of) + ", or with Ctrl-C"
	}
	return "with Ctrl-C"
}

// summed sums a state up in a line.
func summed(s state) string {
	return fmt.Sprintf("%s upstream, %d of %d clients connected; %s responses sent, %s got; change → last client %s, worst %s",
		plural(s.streams, "stream"), s.connected, s.delta+s.sotw, count(s.responses), count(s.deliveries), span(s.travel.last), span(s.travel.worst))
}

// The ways in which figures are written.

func count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func plural(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return count(n) + " " + what
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return count(n) + " times"
}

func size(n int64) string {
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

func ratio(many, few int64) string {
	if few == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(many)/float64(few))
}

// span is a measured time; zero is none.
func span(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func seconds(d time.Duration) string {
	return strings.TrimSuffix(fmt.Sprintf("%.0f", d.Truncate(time.Second).Seconds()), ".0") + " s"
}
