package config

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Override sets one field from a command-line flag of its own, so that an
// error about the value names the flag. key and value are as in --set. Call
// [Config.Validate] after the last one.
func (c *Config) Override(flag, key, value string) error {
	return join(c.override(flag+"="+value, key, value))
}

// applySet applies one --set.
func (c *Config) applySet(arg string) []*Error {
	key, value, ok := strings.Cut(arg, "=")
	if !ok || key == "" {
		return []*Error{{
			Origin: "--set " + arg,
			Msg:    "wants key.path=value",
			Hint:   "for example --set upstream.address=127.0.0.1:15010",
		}}
	}
	return c.override("--set "+arg, strings.TrimSpace(key), value)
}

// override decodes value into the field at key with the rules of the file.
func (c *Config) override(origin, key, value string) []*Error {
	if c.prov == nil {
		c.prov = &provenance{src: newSource("", nil), at: map[string]place{}}
	}
	if mayHoldSecrets(key, value) {
		origin = strings.TrimSuffix(origin, value) + "…"
	}
	d := &decoder{prov: c.prov, origin: clip(origin)}
	target := reflect.ValueOf(c).Elem()
	names := splitKey(key)
	at := ""
	for i, name := range names {
		switch target.Kind() {
		case reflect.Struct:
			now := currentName(target.Type(), name)
			if now != name {
				defer d.outdated(nil, child(at, now), name, now)
			}
			name = now
			field, ok := fieldByName(target, name)
			if !ok {
				bare, _, indexed := strings.Cut(name, "[")
				if f, known := fieldByName(target, bare); indexed && known && f.Kind() == reflect.Slice {
					d.fail(nil, child(at, bare), "one item of a list cannot be set", "set the whole list: "+child(at, bare)+"=[a, b]")
				} else {
					d.fail(nil, "", fmt.Sprintf("unknown field %q", clip(name)), suggest(name, target.Type(), at))
				}
				return d.errs
			}
			target, at = field, child(at, name)
		case reflect.Map:
			if target.Type().Elem().Kind() == reflect.Struct {
				d.sectionItem(target, at, names[i:], value)
				return d.errs
			}
			d.mapItem(target, at, names[i:], value)
			return d.errs
		case reflect.Slice:
			d.fail(nil, at, "one item of a list cannot be set", "set the whole list: "+at+"=[a, b]")
			return d.errs
		default:
			d.fail(nil, at, fmt.Sprintf("has no field %q, it is a single value", clip(name)), "")
			return d.errs
		}
	}
	if n, ok := d.parseValue(value, target.Kind() == reflect.String, at); ok {
		c.prov.forget(at)
		d.value(target, n, at, nil)
	}
	return d.errs
}

// mapItem sets what names lead to inside a map without a schema, making the
// maps on the way.
func (d *decoder) mapItem(target reflect.Value, at string, names []string, value string) {
	m, _ := target.Interface().(map[string]any)
	if m == nil {
		m = map[string]any{}
		target.Set(reflect.ValueOf(m))
	}
	for ; len(names) > 1; names = names[1:] {
		at = child(at, names[0])
		inner, isMap := m[names[0]].(map[string]any)
		if !isMap {
			if m[names[0]] != nil {
				d.fail(nil, at, "is not a mapping", "set "+at+" itself")
				return
			}
			inner = map[string]any{}
			m[names[0]] = inner
		}
		m = inner
	}
	at = child(at, names[0])
	if n, ok := d.parseValue(value, false, at); ok {
		d.prov.forget(at)
		m[names[0]] = d.any(n, at)
	}
}

// parseValue parses the right side of an override. Text is not parsed unless
// it is quoted: [::1]:18001 is an address, not a list, and 007 a name.
func (d *decoder) parseValue(value string, wantsText bool, key string) (ast.Node, bool) {
	quoted := strings.HasPrefix(value, `"`) || strings.HasPrefix(value, `'`)
	if wantsText && !quoted {
		return &ast.StringNode{BaseNode: &ast.BaseNode{}, Value: value}, true
	}
	n, err := parseYAML(newSource("", []byte(value)), []byte(value))
	switch {
	case err != nil:
		for _, e := range All(err) {
			d.fail(nil, key, e.Msg, e.Hint)
		}
		return nil, false
	case n == nil || n.Type() == ast.NullType:
		d.fail(nil, key, "has no value", "write the value after =")
		return nil, false
	}
	return n, true
}

// splitKey splits at dots; a dot inside a name is written \.
func splitKey(key string) []string {
	const dot = "\x00" // cannot be typed in an argument
	names := strings.Split(strings.ReplaceAll(key, `\.`, dot), ".")
	for i := range names {
		names[i] = strings.ReplaceAll(names[i], dot, ".")
	}
	return names
}
