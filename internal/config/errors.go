package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
)

// maxErrors bounds a report; nobody reads more, and a hostile file could cause
// one error for each of its bytes.
const maxErrors = 20

// Error is one mistake in the configuration. All errors of this package are
// one of these, or several joined; see [All].
type Error struct {
	// File is the name given to [Load] or [Parse]. Empty when the value did
	// not come from a file.
	File string
	// Line and Column count from 1, Column in characters. Both are 0 when no
	// place is known.
	Line, Column int
	// Origin is the command-line argument the value came from, such as
	// "--set log.level=loud". Empty when it came from a file or a default.
	Origin string
	// Key is the path of the field, such as "downstream.listen[0]". Empty when
	// the mistake is not about a known field.
	Key string
	// Msg says what is wrong; Hint, which may be empty, what to do about it.
	Msg, Hint string

	source *source // that File, Line and Column are of; nil: they stand alone
	cause  error
}

// Error returns all of it: the place and the message on the first line, then
// the source line with a caret, then the hint. It is text, whatever it quotes.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.head())
	if e.source != nil {
		b.WriteString(e.source.excerpt(e.Line, e.Column))
	}
	if e.Hint != "" {
		b.WriteString("\n  hint: " + e.Hint)
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

// Brief is the error in one line, for a log: the place, the message and the hint.
func (e *Error) Brief() string {
	text := e.head()
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// head is the place and the message.
func (e *Error) head() string {
	var b strings.Builder
	switch {
	case e.Origin != "":
		fmt.Fprintf(&b, "%s: ", e.Origin)
	case e.File != "" && e.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", e.File, e.Line, e.Column)
	case e.File != "":
		fmt.Fprintf(&b, "%s: ", e.File)
	}
	if e.Key != "" {
		fmt.Fprintf(&b, "%s: ", e.Key)
	}
	b.WriteString(e.Msg)
	return b.String()
}

// Unwrap returns the error of the operating system, if there was one.
func (e *Error) Unwrap() error { return e.cause }

// All returns the mistakes in err, in the order they are printed.
func All(err error) []*Error {
	switch e := err.(type) {
	case *Error:
		return []*Error{e}
	case interface{ Unwrap() []error }:
		var all []*Error
		for _, e := range e.Unwrap() {
			all = append(all, All(e)...)
		}
		return all
	case interface{ Unwrap() error }:
		return All(e.Unwrap())
	}
	return nil
}

// OneLine is an error for a log: each mistake with its place and what to do, without the
// lines of the file.
func OneLine(err error) string {
	var mistakes []string
	for _, m := range All(err) {
		mistakes = append(mistakes, m.Brief())
	}
	if len(mistakes) > 0 {
		return strings.Join(mistakes, "; ")
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

// Join makes one error of several, in the order of the file; nil if there are none.
func Join(errs ...error) error {
	var all []*Error
	for _, err := range errs {
		all = append(all, All(err)...)
	}
	return join(all)
}

// Mistake is an error about the value of a key, wherever that was written, that was found
// outside of this package.
func (c *Config) Mistake(key, hint, format string, args ...any) *Error {
	return c.prov.errorFor(key, fmt.Sprintf(format, args...), hint)
}

// join sorts the errors into the order of the file and makes one error of
// them, nil if there are none. What has no place goes last.
func join(errs []*Error) error {
	slices.SortStableFunc(errs, func(a, b *Error) int {
		return cmp.Or(
			cmp.Compare(a.order(), b.order()),
			cmp.Compare(a.Column, b.Column))
	})
	switch n := len(errs); {
	case n == 0:
		return nil
	case n == 1:
		return errs[0]
	case n > maxErrors:
		rest := &Error{File: errs[0].File, Msg: fmt.Sprintf("%d more errors", n-maxErrors)}
		errs = append(errs[:maxErrors:maxErrors], rest)
	}
	list := make([]error, len(errs))
	for i, e := range errs {
		list[i] = e
	}
	return errors.Join(list...)
}

func (e *Error) order() int {
	if e.Line == 0 {
		return math.MaxInt
	}
	return e.Line
}

// source is a file's text by lines, for excerpts.
type source struct {
	name   string
	lines  []string
	hidden map[int]bool // lines that no excerpt shows
}

// hide keeps some lines out of excerpts.
func (s *source) hide(first, n int) {
	if s.hidden == nil {
		s.hidden = map[int]bool{}
	}
	for line := first; line < first+n; line++ {
		s.hidden[line] = true
	}
}

// hideHeaders hides a text whose structure is not known, from where it may have headers.
func (s *source) hideHeaders() {
	for i, line := range s.lines {
		if looksSecret(line) {
			s.hide(i+1, len(s.lines)-i)
			return
		}
	}
}

// looksSecret: what stands in or below a line may be a header's value.
func looksSecret(line string) bool {
	line = strings.ToLower(line)
	return strings.Contains(line, "header") || strings.Contains(line, "authorization") || strings.Contains(line, "token") || strings.Contains(line, "cookie")
}

func newSource(name string, data []byte) *source {
	return &source{name: name, lines: strings.Split(string(data), "\n")}
}

// aboutTab makes an error about a tab of the parser's: the tab stands in the indentation.
func (s *source) aboutTab(e *Error) {
	e.Msg, e.Hint = "a tab, where YAML takes spaces only", "indent the line with spaces; → stands for the tab"
	if e.Line < 1 || e.Line > len(s.lines) {
		return
	}
	text := s.lines[e.Line-1]
	if indent := len(text) - len(strings.TrimLeft(text, " \t")); strings.Contains(text[:indent], "\t") {
		e.Column = strings.Index(text, "\t") + 1
	}
}

// afterBlanks is the column at which something begins that the lexer has placed on the blanks
// before it: it does not count a tab there.
func (s *source) afterBlanks(line, column int) int {
	if line < 1 || line > len(s.lines) {
		return column
	}
	text := []rune(s.lines[line-1])
	if column < 1 || column > len(text) {
		return column
	}
	rest := string(text[column-1:])
	if begins := strings.TrimLeft(rest, " \t\r"); begins != "" {
		column += len(rest) - len(begins)
	}
	return column
}

// excerptWidth is how much of a long line is shown around its caret.
const excerptWidth = 100

// excerpt returns the line with a caret under the column, as lines to append
// to a message. A position outside the text, which a parser may give for
// "at the end", has no excerpt or a caret after the last character. Nor has a line
// that holds the value of a header, wherever on it the mistake is.
func (s *source) excerpt(line, column int) string {
	if line < 1 || line > len(s.lines) || column < 1 || s.hidden[line] {
		return ""
	}
	text := []rune(strings.TrimRight(s.lines[line-1], "\r"))
	for i, r := range text {
		// One column each, and no escape sequence reaches the terminal.
		switch {
		case r == '\t':
			text[i] = '→'
		case !unicode.IsPrint(r):
			text[i] = ' '
		}
	}
	caret := min(column-1, len(text))
	if len(text) > excerptWidth {
		start := max(0, min(caret-excerptWidth/2, len(text)-excerptWidth))
		end := start + excerptWidth
		caret -= start
		cut := slices.Clone(text[start:end])
		if start > 0 {
			cut[0] = '…'
		}
		if end < len(text) {
			cut[len(cut)-1] = '…'
		}
		text = cut
	}
	number := fmt.Sprintf("%5d", line)
	shown := strings.TrimRight(string(text), " ")
	return fmt.Sprintf("\n%s | %s\n%s | %s^", number, shown,
		strings.Repeat(" ", len(number)), strings.Repeat(" ", caret))
}

// clip shortens a value for a message.
func clip(s string) string {
	const limit = 80
	if r := []rune(s); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return s
}
