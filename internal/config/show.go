package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/xds-relay/xds-relay/internal/header"
)

// A configuration as people read it: every key, with its default where nothing else was
// said, in the order of the reference.

// YAML writes the whole configuration as a file that [Load] reads back. secrets: the values
// of headers and what addresses hold before an @ are written, too; else [redacted] stands
// for them.
func (c *Config) YAML(secrets bool) ([]byte, error) {
	return yaml.MarshalWithOptions(printer{secrets: secrets, file: true}.plain(reflect.ValueOf(c).Elem()), yaml.IndentSequence(true))
}

// JSON writes the same as JSON.
func (c *Config) JSON(secrets bool) ([]byte, error) {
	line, err := yaml.MarshalWithOptions(printer{secrets: secrets, file: true}.plain(reflect.ValueOf(c).Elem()), yaml.JSON())
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(line), "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// show is a value in one line, without secrets.
func show(v reflect.Value) string {
	p := printer{}.plain(v)
	if text, ok := p.(string); ok {
		if quoted := strconv.Quote(text); text == "" || quoted != `"`+text+`"` {
			return quoted // empty, or with what does not belong on a line
		}
		return text
	}
	out, err := yaml.MarshalWithOptions(p, yaml.Flow(true))
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(out))
}

// userinfo is what an address holds before an @.
var userinfo = regexp.MustCompile(`(://)[^/@\s]*@`)

// printer makes of values what YAML and JSON have, mappings in order.
type printer struct {
	secrets bool // show them
	file    bool // it is to be read as a configuration: no $ stands for a variable
}

func (p printer) text(s string) string {
	if p.file {
		s = strings.ReplaceAll(s, "$", "$$")
	}
	if p.secrets {
		return s
	}
	return userinfo.ReplaceAllString(s, "${1}[redacted]@")
}

func (p printer) plain(v reflect.Value) any {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch {
	case !v.IsValid():
		return nil
	case v.Type() == valueType && !p.secrets:
		return v.Interface().(header.Value).String()
	case v.Type() == durationType, v.Type() == bytesType:
		return fmt.Sprint(v.Interface())
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return p.plain(v.Elem())
	case reflect.Struct:
		m := yaml.MapSlice{}
		for i := range v.NumField() {
			if name := yamlName(v.Type().Field(i)); name != "" {
				m = append(m, yaml.MapItem{Key: name, Value: p.plain(v.Field(i))})
			}
		}
		return m
	case reflect.Map:
		m := yaml.MapSlice{}
		for _, k := range slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) }) {
			m = append(m, yaml.MapItem{Key: k.String(), Value: p.plain(v.MapIndex(k))})
		}
		return m
	case reflect.Slice:
		list := []any{}
		for i := range v.Len() {
			list = append(list, p.plain(v.Index(i)))
		}
		return list
	case reflect.String:
		return p.text(v.String())
	}
	return v.Interface()
}
