package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// decoder walks the syntax tree beside the schema.
//
// The YAML library could fill the structs by itself, but it stops at the first
// error, gives a bad duration no position, takes 1.9 for an integer and "x: 5"
// for text, and ignores "key:" without a value. A strict file needs the
// opposite of all five.
type decoder struct {
	prov *provenance
	// origin is the command-line argument being applied, if it is not the file.
	origin string
	errs   []*Error
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	bytesType    = reflect.TypeFor[Bytes]()
	switchType   = reflect.TypeFor[Switch]()
)

// maxExactInt is the largest integer that a double, hence a protobuf Struct,
// holds exactly, as do all smaller ones.
const maxExactInt = 1 << 53

func (d *decoder) document(c *Config, body ast.Node) {
	d.value(reflect.ValueOf(c).Elem(), body, "", firstToken(body))
}

// fail records an error at the token.
func (d *decoder) fail(t *token.Token, key, msg, hint string) {
	var e *Error
	if d.origin != "" {
		e = &Error{Origin: d.origin, Key: key, Msg: msg, Hint: hint}
	} else {
		e = d.prov.src.errorAt(t, key, msg, hint)
	}
	d.errs = append(d.errs, e)
}

// record remembers where key got its value.
func (d *decoder) record(key string, t *token.Token, env []string) {
	if key == "" {
		return
	}
	at := place{origin: d.origin, env: env}
	if t != nil && t.Position != nil {
		at.line = t.Position.Line
		at.column = d.prov.src.afterBlanks(at.line, t.Position.Column)
	}
	d.prov.at[key] = at
}

// value decodes n into v. keyToken is where the field's name stands, which is
// the only place to point at when there is no value.
func (d *decoder) value(v reflect.Value, n ast.Node, key string, keyToken *token.Token) {
	at := firstToken(n)
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		if v.Type() == headerType || v.Kind() == reflect.Map && v.Type().Elem() == headerType {
			d.hide(n)
		}
		d.fail(at, key, "anchors, aliases and tags are not supported", "write the value out")
		return
	case *ast.NullNode:
		d.record(key, keyToken, nil)
		d.null(v, key, keyToken)
		return
	}
	d.record(key, at, nil)

	if v.Kind() == reflect.Pointer { // optional scalars
		elem := reflect.New(v.Type().Elem())
		d.value(elem.Elem(), n, key, keyToken)
		v.Set(elem)
		return
	}
	if v.Type() == headerType {
		d.header(v, n, key, at)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		written := map[string]string{} // the names in the file, by the present ones
		d.mapping(n, key, at, func(name string, k ast.Node, val ast.Node) {
			now := currentName(v.Type(), name)
			if other, both := written[now]; both {
				d.fail(k.GetToken(), child(key, now), fmt.Sprintf("%q and %q are one key", other, name), "keep "+now)
				return
			}
			written[now] = name
			field, ok := fieldByName(v, now)
			if !ok {
				if looksSecret(name) {
					d.hide(k)
					d.hide(val)
				}
				d.fail(k.GetToken(), "", fmt.Sprintf("unknown field %q", clip(name)), suggest(name, v.Type(), key))
				return
			}
			if now != name {
				d.outdated(k.GetToken(), child(key, now), name, now)
			}
			d.value(field, val, child(key, now), k.GetToken())
		})
	case reflect.Map:
		if v.Type().Elem().Kind() == reflect.Struct {
			d.sections(v, n, key, at)
			return
		}
		m, ok := d.any(n, key).(map[string]any)
		if !ok {
			d.fail(at, key, "wants a mapping, found "+describe(n), "write name: value lines, indented")
			return
		}
		v.Set(reflect.ValueOf(m))
	case reflect.Slice:
		seq, ok := n.(*ast.SequenceNode)
		if !ok {
			d.fail(at, key, "wants a list, found "+describe(n), "write it as [a, b], or one per line after a dash")
			return
		}
		list := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
		for i, item := range seq.Values {
			d.value(list.Index(i), item, fmt.Sprintf("%s[%d]", key, i), firstToken(item))
		}
		v.Set(list)
	default:
		d.scalar(v, n, key, at)
	}
}

// null decodes "key:" without a value. A section whose lines are all commented
// out is a section of defaults; a setting without a value is a mistake.
func (d *decoder) null(v reflect.Value, key string, keyToken *token.Token) {
	switch v.Kind() {
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return
	case reflect.Slice:
		d.fail(keyToken, key, "has no value", "remove the line to keep the default, or write [] for an empty list")
	case reflect.String:
		d.fail(keyToken, key, "has no value", `remove the line to keep the default, or write "" for empty`)
	default:
		d.fail(keyToken, key, "has no value", "remove the line to keep the default")
	}
}

// mapping calls f for each pair of a mapping. A name that comes twice is
// refused, since one of the two values would silently not apply.
func (d *decoder) mapping(n ast.Node, key string, at *token.Token, f func(name string, k, val ast.Node)) {
	m, ok := n.(ast.MapNode)
	if !ok {
		d.fail(at, key, "wants a mapping, found "+describe(n), "write name: value lines, indented")
		return
	}
	first := map[string]int{}
	for it := m.MapRange(); it.Next(); {
		k := it.Key()
		t := k.GetToken()
		switch k.(type) {
		case *ast.MergeKeyNode, *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MappingKeyNode:
			d.fail(t, key, "anchors, aliases, tags, merge keys and complex keys are not supported", "write the value out")
			continue
		}
		name := keyText(k)
		if line, dup := first[name]; dup {
			d.fail(t, "", fmt.Sprintf("duplicate field %q", clip(name)), fmt.Sprintf("it is already on line %d; keep one", line))
			continue
		}
		if t != nil && t.Position != nil {
			first[name] = t.Position.Line
		}
		f(name, k, it.Value())
	}
}

// scalar decodes text, numbers, booleans and what is written as one of them.
// Text that was made of environment variables may also fill a field that is
// not text, because there is no other way to write that.
func (d *decoder) scalar(v reflect.Value, n ast.Node, key string, at *token.Token) {
	var text string
	var isText bool
	switch n := n.(type) {
	case *ast.StringNode:
		text, isText = n.Value, true
	case *ast.LiteralNode:
		text, isText = n.Value.Value, true
	}
	var env []string
	if isText {
		out, used, err := expandEnv(text)
		if err != nil {
			d.fail(at, key, err.Msg, err.Hint)
			return
		}
		if text, env = out, used; len(env) > 0 {
			d.record(key, at, env)
		}
	}
	refuse := func(wants, hint string) {
		found := describe(n)
		if len(env) > 0 {
			found = fmt.Sprintf("%q (from ${env:%s})", clip(text), strings.Join(env, "}, ${env:"))
		}
		d.fail(at, key, "wants "+wants+", found "+found, hint)
	}

	switch typ := v.Type(); {
	case typ == durationType:
		if i, ok := integer(n); ok && i == 0 {
			v.SetInt(0)
			return
		}
		dur, err := time.ParseDuration(text)
		if !isText || err != nil {
			hint := "units are ms, s, m and h"
			if _, ok := integer(n); ok {
				hint = "add a unit: ms, s, m or h"
			}
			refuse("a duration such as 30s", hint)
			return
		}
		v.SetInt(int64(dur))
	case typ == bytesType:
		if i, ok := integer(n); ok {
			v.SetInt(i)
			return
		}
		b, err := ParseBytes(text)
		if !isText || err != nil {
			refuse("a size such as 64MiB", "units are B, KiB, MiB, GiB and TiB")
			return
		}
		v.SetInt(int64(b))
	case typ == switchType:
		if b, ok := n.(*ast.BoolNode); ok {
			text, isText = strconv.FormatBool(b.Value), true
		}
		if !isText {
			refuse("auto, true or false", "")
			return
		}
		v.SetString(text)
	case v.Kind() == reflect.String:
		if !isText {
			hint := ""
			if t := n.GetToken(); t != nil && isPlainScalar(n) {
				hint = fmt.Sprintf("put it in quotes: %q", clip(t.Value))
			}
			refuse("text", hint)
			return
		}
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		switch {
		case ok:
			v.SetBool(b.Value)
		case len(env) > 0 && (text == "true" || text == "false"):
			v.SetBool(text == "true")
		default:
			refuse("true or false", "")
		}
	case v.Kind() == reflect.Int:
		i, ok := integer(n)
		if !ok && len(env) > 0 {
			parsed, err := strconv.ParseInt(text, 10, 64)
			i, ok = parsed, err == nil
		}
		if !ok || v.OverflowInt(i) {
			refuse("a whole number", "")
			return
		}
		v.SetInt(i)
	case v.Kind() == reflect.Float64:
		f, ok := number(n)
		if !ok && len(env) > 0 {
			parsed, err := strconv.ParseFloat(text, 64)
			f, ok = parsed, err == nil
		}
		if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
			refuse("a number", "")
			return
		}
		v.SetFloat(f)
	default:
		// A field type that the schema did not have when this was written.
		refuse("nothing that this version can read", "report this as a bug")
	}
}

// any decodes a value without a schema, as node metadata has. It must fit into
// a protobuf Struct.
func (d *decoder) any(n ast.Node, key string) any {
	at := firstToken(n)
	d.record(key, at, nil)
	switch n := n.(type) {
	case *ast.NullNode:
		return nil
	case *ast.BoolNode:
		return n.Value
	case *ast.StringNode, *ast.LiteralNode:
		var s string
		d.scalar(reflect.ValueOf(&s).Elem(), n, key, at)
		return s
	case *ast.IntegerNode:
		i, ok := integer(n)
		if !ok || i > maxExactInt || i < -maxExactInt {
			d.fail(at, key, "number too large to travel unchanged", "put it in quotes to send it as text")
		}
		return i
	case *ast.FloatNode:
		return n.Value
	case *ast.SequenceNode:
		list := make([]any, len(n.Values))
		for i, item := range n.Values {
			list[i] = d.any(item, fmt.Sprintf("%s[%d]", key, i))
		}
		return list
	case *ast.MappingNode, *ast.MappingValueNode:
		m := map[string]any{}
		d.mapping(n, key, at, func(name string, k, val ast.Node) {
			if _, ok := k.(*ast.StringNode); !ok {
				d.fail(k.GetToken(), key, "a key must be text, found "+describe(k), fmt.Sprintf("put it in quotes: %q", clip(name)))
				return
			}
			m[name] = d.any(val, child(key, name))
		})
		return m
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		d.fail(at, key, "anchors, aliases and tags are not supported", "write the value out")
	default:
		d.fail(at, key, "cannot send "+describe(n), "use text, a number, true, false, a list or a mapping")
	}
	return nil
}

func integer(n ast.Node) (int64, bool) {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		return 0, false
	}
	switch v := i.Value.(type) {
	case int64:
		return v, true
	case uint64:
		return int64(v), v <= math.MaxInt64
	}
	return 0, false
}

func number(n ast.Node) (float64, bool) {
	if f, ok := n.(*ast.FloatNode); ok {
		return f.Value, true
	}
	i, ok := integer(n)
	return float64(i), ok
}

func isPlainScalar(n ast.Node) bool {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return true
	}
	return false
}

// describe says what was found, in the words of somebody who writes YAML.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.NullNode:
		return "nothing"
	case *ast.StringNode:
		return strconv.Quote(clip(n.Value))
	case *ast.LiteralNode:
		return strconv.Quote(clip(n.Value.Value))
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	}
	if t := n.GetToken(); t != nil && isPlainScalar(n) {
		return clip(t.Value)
	}
	return "something else"
}

// keyText is the name in a key, whatever its YAML type.
func keyText(k ast.Node) string {
	if s, ok := k.(*ast.StringNode); ok {
		return s.Value
	}
	if t := k.GetToken(); t != nil {
		return t.Value
	}
	return ""
}
