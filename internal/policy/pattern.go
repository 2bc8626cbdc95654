package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// pattern is a text with stars and captures: "*" matches any characters except "/" and "~", "**" any
// characters, and "{capture}" stands for what the capture of the rule's identity has matched, literally.
type pattern struct {
	text  string
	parts []part
	gaps  []gap
}

// gap is what stands between a capture and the star or capture next to it.
type gap struct {
	at      int // the capture's place among those of the identity
	between string
}

type part struct {
	kind kind
	text string // of a literal; the name of a capture
	at   int    // of a capture: its place among those of the identity
}

type kind int

const (
	literal kind = iota
	capture
	star  // within a segment
	stars // any characters
)

// borders are the characters of which one has to stand between a star and a capture: "{sa}-*" would give
// "web" what belongs to "web-admin".
const borders = "/~."

// segmentEnds are the characters that "*" does not match.
const segmentEnds = "/~"

// parsePattern reads a pattern. captures are those that it may use; nil: any, and each is new.
func parsePattern(text string, captures []string) (pattern, error) {
	p := pattern{text: text}
	if text == "" {
		return p, errors.New("is empty")
	}
	for rest := text; rest != ""; {
		var next part
		switch i := strings.IndexAny(rest, "*{}"); {
		case i != 0:
			if i < 0 {
				i = len(rest)
			}
			next, rest = part{text: rest[:i]}, rest[i:]
		case strings.HasPrefix(rest, "***"):
			return p, errors.New(`has three stars in a row; "*" matches within a segment, and "**" anything`)
		case strings.HasPrefix(rest, "**"):
			next, rest = part{kind: stars}, rest[2:]
		case rest[0] == '*':
			next, rest = part{kind: star}, rest[1:]
		default:
			name, after, closed := strings.Cut(rest[1:], "}")
			if rest[0] == '}' || !closed || !isName(name) {
				return p, errors.New(`has a brace that is no capture; a capture is letters, digits and "_" in braces, such as {ns}`)
			}
			next, rest = part{kind: capture, text: name, at: slices.Index(captures, name)}, after
			if captures != nil && next.at < 0 {
				return p, fmt.Errorf("uses {%s}, which the identity does not have", name)
			}
		}
		p.parts = append(p.parts, next)
	}
	return p, p.findGaps()
}

func isName(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// findGaps finds what stands between neighbours of which one is a capture. It refuses those with none of the borders
// between them.
func (p *pattern) findGaps() error {
	last := -1 // the place of the last star or capture
	for i, next := range p.parts {
		if next.kind == literal {
			continue
		}
		if last >= 0 {
			if err := p.findGap(p.parts[last], next, p.parts[last+1:i]); err != nil {
				return err
			}
		}
		last = i
	}
	return nil
}

// findGap takes in two neighbours and the literal between them, if there is one.
func (p *pattern) findGap(a, b part, literals []part) error {
	between := ""
	for _, l := range literals {
		between += l.text
	}
	bordered := strings.ContainsAny(between, borders)
	switch {
	case a.kind != capture && b.kind != capture:
		return nil
	case !bordered && a.kind == b.kind:
		return fmt.Errorf("has two captures with none of %q between them, so that different clients could match the same text", borders)
	case !bordered:
		return fmt.Errorf("has a star next to a capture; one of %q must stand between them, or {a}-* would match what belongs to {a}-b", borders)
	}
	for _, of := range []part{a, b} {
		if of.kind == capture {
			p.gaps = append(p.gaps, gap{of.at, between})
		}
	}
	return nil
}

// ambiguous reports whether a capture has in it all borders by which it is told from its neighbours: "{a}.*" would
// give "web" what belongs to "web.admin". Such a pattern matches nothing.
func (p *pattern) ambiguous(captures []string) bool {
	return slices.ContainsFunc(p.gaps, func(g gap) bool {
		return !strings.ContainsFunc(g.between, func(c rune) bool {
			return strings.ContainsRune(borders, c) && !strings.ContainsRune(captures[g.at], c)
		})
	})
}

// constant reports whether the pattern is one text for all clients.
func (p *pattern) constant() bool {
	return len(p.parts) == 1 && p.parts[0].kind == literal
}

// uses reports whether a part of this kind is in the pattern.
func (p *pattern) uses(k kind) bool {
	return slices.ContainsFunc(p.parts, func(part part) bool { return part.kind == k })
}

// any reports whether the pattern matches every text.
func (p *pattern) any() bool { return len(p.parts) == 1 && p.parts[0].kind == stars }

// matches reports whether the pattern, with these captures, matches the whole of a text.
func (p *pattern) matches(text string, captures []string) bool {
	if p.ambiguous(captures) {
		return false
	}
	parts := p.parts
	for len(parts) > 0 && (parts[0].kind == literal || parts[0].kind == capture) {
		rest, found := strings.CutPrefix(text, parts[0].of(captures))
		if !found {
			return false
		}
		text, parts = rest, parts[1:]
	}
	switch {
	case len(parts) == 0:
		return text == ""
	case len(parts) == 1 && parts[0].kind == stars:
		return true
	case len(parts) == 1:
		return !strings.ContainsAny(text, segmentEnds)
	}
	return reaches(parts, text, captures)
}

// of is the text that a literal or a capture stands for.
func (p part) of(captures []string) string {
	if p.kind == capture {
		return captures[p.at]
	}
	return p.text
}

// reaches matches part after part, and keeps all places that can be reached, so that a pattern with many
// stars costs no more than their number times the length of the text.
func reaches(parts []part, text string, captures []string) bool {
	at, next := make([]bool, len(text)+1), make([]bool, len(text)+1)
	at[0] = true
	for _, p := range parts {
		clear(next)
		switch p.kind {
		case star, stars:
			open := false
			for i := range next {
				if open = open || at[i]; open {
					next[i] = true
				}
				if p.kind == star && i < len(text) && strings.IndexByte(segmentEnds, text[i]) >= 0 {
					open = false
				}
			}
		default:
			of := p.of(captures)
			for i, here := range at {
				if here && strings.HasPrefix(text[i:], of) {
					next[i+len(of)] = true
				}
			}
		}
		at, next = next, at
	}
	return at[len(text)]
}

// says reports whether the pattern, with these captures, is written as a glob is. The star of a glob is the pattern's own:
// a certificate for *.example.com has one, too, in what a capture stands for.
func (p *pattern) says(glob string, captures []string) bool {
	starred := slices.ContainsFunc(p.parts, func(part part) bool { return part.kind == capture && strings.Contains(captures[part.at], "*") })
	return !starred && p.expand(captures) == glob
}

// expand is the pattern's text for a client with these captures, stars as they are.
func (p *pattern) expand(captures []string) string {
	var b strings.Builder
	for _, part := range p.parts {
		switch part.kind {
		case star:
			b.WriteString("*")
		case stars:
			b.WriteString("**")
		default:
			b.WriteString(part.of(captures))
		}
	}
	return b.String()
}
