package config

import (
	"maps"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// provenance remembers where values were written, so that a check that runs
// long after parsing can still point at the line.
type provenance struct {
	src *source
	at  map[string]place // by key, such as "downstream.listen[0]"
	// outdated are the notes about keys that were written by their old names, by the present ones.
	outdated map[string]*Error
}

// FileText is the file that the configuration was read from, as it was then.
func (c *Config) FileText() []byte {
	if c.prov == nil || c.prov.src == nil {
		return nil
	}
	return []byte(strings.Join(c.prov.src.lines, "\n"))
}

// Blank reports whether the configuration's file sets nothing: it is empty, or has comments only.
func (c *Config) Blank() bool {
	if c.prov == nil || c.prov.src == nil || c.prov.src.name == "" {
		return false
	}
	for _, at := range c.prov.at {
		if at.origin == "" {
			return false
		}
	}
	return true
}

// place is a position in the file or, if origin is set, a command-line argument.
type place struct {
	line, column int
	origin       string
	env          []string // the variables the value was made of
}

// find returns the place of key or of the nearest thing around it, which is
// where a field that is missing would have to be added.
func (p *provenance) find(key string) (place, bool) {
	if p == nil {
		return place{}, false
	}
	for key != "" {
		if at, ok := p.at[key]; ok {
			return at, true
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return place{}, false
}

// forget drops all that was written at or under key, because an override
// replaces it.
func (p *provenance) forget(key string) {
	under := func(k string) bool {
		rest, ok := strings.CutPrefix(k, key)
		return ok && (rest == "" || strings.IndexAny(rest, ".[") == 0)
	}
	maps.DeleteFunc(p.at, func(k string, _ place) bool { return under(k) })
	maps.DeleteFunc(p.outdated, func(k string, _ *Error) bool { return under(k) })
}

// errorFor makes an error about the value of key, wherever it came from.
func (p *provenance) errorFor(key, msg, hint string) *Error {
	e := &Error{Key: key, Msg: msg, Hint: hint}
	at, ok := p.find(key)
	switch {
	case !ok:
		return e
	case at.origin != "":
		e.Origin = at.origin
	default:
		e.File, e.Line, e.Column = p.src.name, at.line, at.column
		e.source = p.src
	}
	if len(at.env) > 0 {
		e.Msg += " (from ${env:" + strings.Join(at.env, "}, ${env:") + "})"
	}
	return e
}

// errorAt makes an error about a place in the text.
func (s *source) errorAt(t *token.Token, key, msg, hint string) *Error {
	e := &Error{File: s.name, Key: key, Msg: msg, Hint: hint, source: s}
	if t != nil && t.Position != nil {
		e.Line = t.Position.Line
		e.Column = s.afterBlanks(e.Line, t.Position.Column)
	}
	return e
}

// firstToken is where a person sees the node begin. The parser's own idea of a
// mapping's token is its first colon.
func firstToken(n ast.Node) *token.Token {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return firstToken(n.Values[0])
		}
	case *ast.MappingValueNode:
		if n.Key != nil {
			return n.Key.GetToken()
		}
	}
	return n.GetToken()
}
