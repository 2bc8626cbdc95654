package xdstest

import (
	"fmt"
	"strconv"
	"strings"
)

// tokens splits a line at the blanks outside double quotes. The quotes stay in the tokens.
func tokens(s string) ([]string, error) { return split(s, " \t") }

// split cuts s at any of the separators, except inside quotes and brackets, and drops empty pieces.
func split(s, separators string) ([]string, error) {
	var out []string
	start, depth := 0, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted, err := strconv.QuotedPrefix(s[i:])
			if err != nil {
				return nil, fmt.Errorf("unfinished quote in %q", s)
			}
			i += len(quoted) - 1
		case c == '[':
			depth++
		case c == ']':
			depth--
		case depth <= 0 && strings.IndexByte(separators, c) >= 0:
			if i > start {
				out = append(out, s[start:i])
			}
			start = i + 1
		}
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out, nil
}

// word reads a bare or quoted word at the start of s; a bare one ends before any of the stops.
func word(s, stops string) (w, rest string, quoted bool, err error) {
	if strings.HasPrefix(s, `"`) {
		prefix, err := strconv.QuotedPrefix(s)
		if err != nil {
			return "", "", false, fmt.Errorf("unfinished quote in %s", s)
		}
		w, err = strconv.Unquote(prefix)
		return w, s[len(prefix):], true, err
	}
	w = s
	if i := strings.IndexAny(s, stops); i >= 0 {
		w, rest = s[:i], s[i:]
	}
	if strings.Contains(w, `"`) {
		return "", "", false, fmt.Errorf("a quote inside %s: quote all of it, or none", w)
	}
	return w, rest, false, nil
}

// whole reads a token that is one bare or quoted word.
func whole(s string) (string, error) {
	w, rest, _, err := word(s, "")
	if err == nil && rest != "" {
		err = fmt.Errorf("unexpected %s after the quote in %s", rest, s)
	}
	return w, err
}

// quote is the inverse of whole, and of word with any stops: bare where nothing could be misread.
func quote(s string) string {
	bare := s != "" && s[0] != '-'
	for i := 0; i < len(s) && bare; i++ {
		c := s[i]
		bare = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_./*-?", c) >= 0
	}
	if bare {
		return s
	}
	return strconv.Quote(s)
}

// Quote is how an event prints a word.
func Quote(s string) string { return quote(s) }

// quoteAll quotes each, leaving the argument alone.
func quoteAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quote(s)
	}
	return out
}
