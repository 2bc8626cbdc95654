package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/xds-relay/xds-relay/internal/header"
)

// Header is a header of the relay's streams, or of the webhook's POSTs, written as
// text, or as a section if its value stands in a file.
type Header struct {
	// Value is the header's value. Text instead of a section sets it. The relay
	// never shows it; File or an environment variable is a better place for a
	// token.
	// Default: "".
	Value header.Value `yaml:"value"`

	// File holds the value; blanks and line ends around it do not count. The
	// relay reads it again for each stream or POST, so that a token may be replaced
	// at any time. While it cannot be read, streams to the control plane, or POSTs,
	// fail, and the log says why. It must be a regular file, or a link to one.
	// Default: "".
	File string `yaml:"file"`

	// Prefix goes before the value, such as "Bearer ".
	// Default: "".
	Prefix string `yaml:"prefix"`
}

// maxHeaderBytes is the longest value; servers take 8 KiB of headers at least.
const maxHeaderBytes = 8 << 10

// Read is the value of a header at this time.
func (h Header) Read() (header.Value, error) {
	value := h.Value
	if h.File != "" {
		data, err := readNamed(h.File)
		if err != nil {
			return "", fmt.Errorf("cannot read %q: %s", h.File, osReason(err))
		}
		value = header.Value(strings.TrimSpace(string(data)))
	}
	whole := header.Value(h.Prefix) + value
	problem := ""
	switch {
	case value == "":
		problem = "has no value"
	case !whole.Printable():
		problem = "is not one line of printable ASCII"
	case len(whole) > maxHeaderBytes:
		problem = fmt.Sprintf("has %d bytes, more than %v", len(whole), Bytes(maxHeaderBytes))
	default:
		return whole, nil
	}
	if h.File != "" {
		return "", fmt.Errorf("%q %s", h.File, problem)
	}
	return "", errors.New(problem)
}

// --- reading the configuration ---

var (
	headerType = reflect.TypeFor[Header]()
	valueType  = reflect.TypeFor[header.Value]()
)

// header decodes a header: text, or a section. Neither a message nor an excerpt
// of the file shows the text.
func (d *decoder) header(v reflect.Value, n ast.Node, key string, at *token.Token) {
	h := v.Addr().Interface().(*Header)
	if _, ok := n.(ast.MapNode); !ok {
		d.secret(&h.Value, n, key, at)
		return
	}
	d.mapping(n, key, at, func(name string, k, val ast.Node) {
		field, ok := fieldByName(v, name)
		switch {
		case !ok:
			d.hide(val)
			d.fail(k.GetToken(), "", fmt.Sprintf("unknown field %q", clip(name)), suggest(name, headerType, key))
		case field.Type() == valueType && val.Type() != ast.NullType:
			d.record(child(key, name), firstToken(val), nil)
			d.secret(&h.Value, val, child(key, name), firstToken(val))
		default:
			d.value(field, val, child(key, name), k.GetToken())
		}
	})
}

// secret decodes text that is not to be shown.
func (d *decoder) secret(v *header.Value, n ast.Node, key string, at *token.Token) {
	var text string
	switch n := n.(type) {
	case *ast.StringNode:
		text = n.Value
	case *ast.LiteralNode:
		text = n.Value.Value
	default:
		d.hide(n)
		d.fail(at, key, "wants text, or a section with file", "put the value in quotes")
		return
	}
	out, env, err := expandEnv(text)
	switch {
	case err != nil && strings.HasPrefix(err.Msg, unsetVariable):
		d.hide(n)
		d.fail(at, key, err.Msg, err.Hint)
		return
	case err != nil: // and says what it has found
		d.hide(n)
		d.fail(at, key, "has a ${ that begins no reference", `write ${env:NAME} or ${env:NAME:-default}; a literal $ is written $$`)
		return
	case len(env) > 0:
		d.record(key, at, env)
	default:
		d.hide(n)
	}
	*v = header.Value(out)
}

// hide keeps the lines of a value out of excerpts.
func (d *decoder) hide(n ast.Node) {
	if d.origin != "" {
		return
	}
	ast.Walk(visitor(func(n ast.Node) {
		if t := n.GetToken(); t != nil && t.Position != nil {
			d.prov.src.hide(t.Position.Line, 1+strings.Count(t.Origin, "\n"))
		}
	}), n)
}

type visitor func(ast.Node)

func (v visitor) Visit(n ast.Node) ast.Visitor {
	v(n)
	return v
}

// sections decodes a mapping of names to sections.
func (d *decoder) sections(v reflect.Value, n ast.Node, key string, at *token.Token) {
	if _, ok := n.(ast.MapNode); !ok { // and what it is instead may be a header's value
		d.hide(n)
		d.fail(at, key, "wants a mapping of names to values", "write name: value lines, indented")
		return
	}
	m := reflect.MakeMap(v.Type())
	d.mapping(n, key, at, func(name string, k, val ast.Node) {
		section := reflect.New(v.Type().Elem()).Elem()
		d.value(section, val, child(key, name), k.GetToken())
		m.SetMapIndex(reflect.ValueOf(name), section)
	})
	v.Set(m)
}

// sectionItem sets what an override's names lead to inside a mapping of names to
// sections.
func (d *decoder) sectionItem(m reflect.Value, at string, names []string, value string) {
	section := reflect.New(m.Type().Elem()).Elem()
	name := reflect.ValueOf(names[0])
	if there := m.MapIndex(name); there.IsValid() {
		section.Set(there)
	}
	at = child(at, names[0])
	target, isText := section, !strings.HasPrefix(value, "{")
	if len(names) > 1 {
		field, ok := fieldByName(section, names[1])
		if !ok || len(names) > 2 {
			d.fail(nil, "", fmt.Sprintf("unknown field %q", clip(strings.Join(names[1:], "."))), suggest(names[1], section.Type(), at))
			return
		}
		target, at, isText = field, child(at, names[1]), field.Kind() == reflect.String
	} else {
		section.SetZero()
	}
	n, ok := d.parseValue(value, isText, at)
	if !ok {
		return
	}
	d.prov.forget(at)
	if target.Type() == valueType {
		d.record(at, nil, nil)
		d.secret(target.Addr().Interface().(*header.Value), n, at, nil)
	} else {
		d.value(target, n, at, nil)
	}
	if m.IsNil() {
		m.Set(reflect.MakeMap(m.Type()))
	}
	m.SetMapIndex(name, section)
}

// mayHoldSecrets: an argument that sets a header is not shown whole.
func mayHoldSecrets(key, value string) bool {
	return looksSecret(key+value) && !strings.HasPrefix(key, "groups")
}
