package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// identity is the pattern of a rule's identity. It is matched segment by segment, so that it can be matched in
// one way only: a capture is a whole segment, "*" matches within one, and "**" is all that is left.
type identity struct {
	text     string
	kind     string // its beginning, which is matched as it is
	prefix   string // the kind, and the segments up to the first that is a pattern
	ends     string // what stands between segments
	segments []pattern
	captures []string // by name, in the order in which they stand
}

// Anonymous is the identity of a client that has proved none.
const Anonymous = "anonymous"

// The beginnings of identities that are no URIs.
const (
	dns     = "dns:"
	subject = "subject:"
	unixUID = "unix:uid="
)

func parseIdentity(text string) (id identity, err error) {
	if id, err = kindOf(text); err != nil {
		return id, err
	}
	rest := text[len(id.kind):]
	if id.ends == "" {
		if strings.ContainsAny(rest, "*{}") {
			return id, fmt.Errorf("has a star or a capture; an identity that begins with %q is written out", id.kind)
		}
		id.segments = []pattern{{text: rest, parts: []part{{text: rest}}}}
		return id, nil
	}
	segments := strings.Split(rest, id.ends)
	for i, s := range segments {
		if s == "" {
			return id, errors.New("has an empty segment")
		}
		p, err := parsePattern(s, nil)
		switch {
		case err != nil:
			return id, err
		case p.uses(stars) && (!p.any() || i < len(segments)-1):
			return id, errors.New(`has "**" in the middle; it is a segment of its own, and the last one`)
		case p.uses(capture) && len(p.parts) > 1:
			return id, fmt.Errorf("has a capture beside other text; a capture is a whole segment, between %q and %q", id.ends, id.ends)
		case p.uses(capture) && slices.Contains(id.captures, p.parts[0].text):
			return id, fmt.Errorf("has {%s} twice", p.parts[0].text)
		case p.uses(capture):
			id.captures = append(id.captures, p.parts[0].text)
		}
		id.segments = append(id.segments, p)
	}
	id.prefix = id.kind
	for i := 0; i < len(segments) && id.segments[i].constant(); i++ {
		id.prefix += segments[i]
		if i < len(segments)-1 {
			id.prefix += id.ends
		}
	}
	return id, nil
}

// kindOf is the kind of an identity: how it begins, and what is between its segments.
func kindOf(text string) (identity, error) {
	scheme, _, uri := strings.Cut(text, ":")
	switch {
	case text == "":
		return identity{}, errors.New("is missing")
	case text == Anonymous:
		return identity{text: text, kind: text}, nil
	case strings.HasPrefix(text, dns):
		return identity{text: text, kind: dns, ends: "."}, nil
	case strings.HasPrefix(text, subject):
		return identity{text: text, kind: subject}, nil
	case strings.HasPrefix(text, unixUID):
		return identity{text: text, kind: unixUID}, nil
	case !uri || strings.ContainsAny(scheme, "*{}/") || scheme == "unix":
		return identity{}, errors.New("is none: write a URI such as spiffe://…, or dns:NAME, subject:NAME, unix:uid=N or anonymous")
	}
	kind := scheme + ":"
	if strings.HasPrefix(text, kind+"//") {
		kind += "//"
	}
	return identity{text: text, kind: kind, ends: "/"}, nil
}

// constant reports whether it is one identity.
func (id *identity) constant() bool {
	return !slices.ContainsFunc(id.segments, func(p pattern) bool { return !p.constant() })
}

// match returns what the captures stand for, if the identity matches.
func (id *identity) match(who string) (captures []string, ok bool) {
	rest, found := strings.CutPrefix(who, id.kind)
	if !found || !strings.HasPrefix(who, id.prefix) { // there may be many rules, each for a namespace of its own
		return nil, false
	}
	if id.ends == "" {
		return nil, who == id.text
	}
	segments := strings.Split(rest, id.ends)
	last := len(id.segments) - 1
	open := id.segments[last].any()
	if len(segments) != len(id.segments) && (!open || len(segments) < len(id.segments)) {
		return nil, false
	}
	for i, p := range id.segments {
		switch {
		case i == last && open:
			return captures, segments[i] != ""
		case segments[i] == "":
			return nil, false
		case p.parts[0].kind == capture:
			captures = append(captures, segments[i])
		case !p.matches(segments[i], nil):
			return nil, false
		}
	}
	return captures, true
}
