package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	schemaFile = "../../deploy/schema/xds-relay.schema.json"
	examples   = "../../deploy/examples/*/relay.yaml"
	// schemaLine begins an example, for editors that know of schemas.
	schemaLine = "# yaml-language-server: $schema=../../schema/xds-relay.schema.json\n"
)

// object is a JSON object; encoding/json sorts its names.
type object = map[string]any

// schemaWriter makes the schema of the structs of Config.
type schemaWriter struct{ docs map[string]string }

// variable is a value that is made of an environment variable, and so of any type.
var variable = object{"type": "string", "pattern": `\$\{env:`}

func (w *schemaWriter) section(v reflect.Value) object {
	properties := object{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := yamlName(f)
		if name == "" {
			continue
		}
		doc, _, _ := strings.Cut(w.docs[v.Type().Name()+"."+f.Name], "Default: ")
		p := w.value(v.Field(i))
		p["description"] = oneLine(doc)
		if f.Type.Kind() != reflect.Struct {
			p["default"] = printer{secrets: true}.plain(v.Field(i))
		}
		properties[name] = p
		for old, now := range renamed[v.Type()] {
			if now == name {
				d := maps.Clone(p)
				d["description"], d["deprecated"] = "the old name of "+now, true
				properties[old] = d
			}
		}
	}
	return object{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
}

func anyOf(schemas ...any) object { return object{"anyOf": schemas} }

// value is the schema of a type; v holds its default.
func (w *schemaWriter) value(v reflect.Value) object {
	typ := v.Type()
	if e, ok := v.Interface().(enum); ok {
		values := []any{}
		for _, s := range e.Values() {
			values = append(values, s)
		}
		if typ == switchType {
			values = append(values, true, false)
		}
		return anyOf(object{"enum": values}, variable)
	}
	switch typ {
	case headerType:
		section := w.section(v)
		section["type"] = "object"
		return anyOf(object{"type": "string"}, section)
	case durationType:
		return anyOf(object{"const": 0}, object{"type": "string", "pattern": `^(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+)$`}, variable)
	case bytesType:
		return anyOf(object{"type": "integer", "minimum": 0}, object{"type": "string", "pattern": `^\s*[0-9]+\s*(B|KiB|MiB|GiB|TiB)?\s*$`}, variable)
	}
	zero := func() reflect.Value { return reflect.New(typ.Elem()).Elem() }
	switch typ.Kind() {
	case reflect.Struct:
		return w.section(v)
	case reflect.Slice:
		return object{"type": "array", "items": w.value(zero())}
	case reflect.Map:
		if typ.Elem().Kind() != reflect.Struct {
			return object{"type": []string{"object", "null"}}
		}
		return object{"type": []string{"object", "null"}, "additionalProperties": w.value(zero())}
	case reflect.Pointer:
		return anyOf(object{"type": "null"}, w.value(zero()))
	case reflect.Bool:
		return anyOf(object{"type": "boolean"}, variable)
	case reflect.Int:
		return anyOf(object{"type": "integer", "minimum": 0}, variable)
	case reflect.Float64:
		return anyOf(object{"type": "number", "minimum": 0}, variable)
	case reflect.String:
		return object{"type": "string"}
	}
	panic("no schema for " + typ.String())
}

func writeSchema(t *testing.T) []byte {
	c := Default()
	w := &schemaWriter{fieldDocs(t)}
	s := w.section(reflect.ValueOf(&c).Elem())
	s["$schema"], s["title"] = "https://json-schema.org/draft/2020-12/schema", "Configuration of xds-relay ("+APIVersion+")"
	s["properties"].(object)["apiVersion"].(object)["const"] = APIVersion
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(ordered(s)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// ordered makes what is JSON already of values that are ordered in YAML.
func ordered(v any) any {
	switch v := v.(type) {
	case object:
		for k := range v {
			v[k] = ordered(v[k])
		}
	case []any:
		for i := range v {
			v[i] = ordered(v[i])
		}
	case yaml.MapSlice:
		m := object{}
		for _, item := range v {
			m[item.Key.(string)] = ordered(item.Value)
		}
		return m
	}
	return v
}

// TestSchemaIsTrue: the schema in the repository is what Config says.
func TestSchemaIsTrue(t *testing.T) {
	got := writeSchema(t)
	if *update {
		if err := os.WriteFile(schemaFile, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(schemaFile)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what Config says (%v); run go test ./internal/config -run 'Reference|Schema' -update", schemaFile, err)
	}
}

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// judged is what the schema says of a file.
func judged(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

// TestExamplesFitTheSchema: and say where it is.
func TestExamplesFitTheSchema(t *testing.T) {
	s := compiled(t)
	files, err := filepath.Glob(examples)
	if err != nil || len(files) < 5 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(data), schemaLine) {
			t.Errorf("%s does not begin with %s", file, schemaLine)
		}
		if err := judged(t, s, string(data)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestSchemaAgrees: what the schema says of a file is what the relay says, as far as a
// schema can tell.
func TestSchemaAgrees(t *testing.T) {
	s := compiled(t)
	defaults, full := Default(), fullConfig()
	printed := func(c Config) string {
		out, err := c.YAML(true)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, text := range []string{
		fullFile, printed(defaults), printed(full), "upstream:\n", "timers: {settle: 0}", "timers: {name_linger: 1m30.5s}",
		"downstream: {max_name_bytes: 4096}", "downstream: {max_name_bytes: 4 KiB}", "groups: {max: '${env:MAX:-7}'}",
		"upstream: {explicit_missing: true}", "upstream: {headers: {x-a: text, x-b: {file: /b}}}", "types: [{type_url: CDS, full_state: null}]",
	} {
		_, err := Parse("f", []byte(text), nil)
		if bad := judged(t, s, text); bad != nil || err != nil {
			t.Errorf("%s\nthe schema: %v\nthe relay: %v", text, bad, err)
		}
	}
	for _, text := range []string{
		"bogus: 1", "upstream: {addr: x}", "timers: {settle: 5}", "timers: {settle: soon}", "timers: []", "groups: {max: -1}",
		"groups: {max: 1.5}", "log: {level: loud}", "downstream: {listen: x}", "downstream: {max_name_bytes: 4kB}", "apiVersion: v2",
		"upstream: {headers: {x-a: {fil: x}}}", "upstream: {fallbacks: [{addr: x}]}", "admin: {pprof: maybe}", "types: [{full_state: 1}]",
	} {
		_, err := Parse("f", []byte(text), nil)
		if bad := judged(t, s, text); bad == nil || err == nil {
			t.Errorf("%s\nthe schema: %v\nthe relay: %v", text, bad, err)
		}
	}
}
