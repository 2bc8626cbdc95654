package config

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
)

// Document is a file with a schema of its own, such as the rules of authz.rules_file. It is read as
// strictly as the configuration, and a mistake in it has the same form.
type Document struct{ prov *provenance }

// ReadDocument reads the file at path into a schema: a pointer to a struct with the yaml tags of its fields.
func ReadDocument(path string, into any) (*Document, error) {
	data, err := readNamed(path)
	if err != nil {
		return nil, &Error{File: path, Msg: "cannot read the file: " + osReason(err), Hint: "check the path and the permissions", cause: err}
	}
	return ParseDocument(path, data, into)
}

// ParseDocument does the same with a text; the name is used in messages only.
func ParseDocument(name string, data []byte, into any) (*Document, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // a byte order mark
	doc := &Document{&provenance{src: newSource(name, data), at: map[string]place{}}}
	body, err := parseYAML(doc.prov.src, data)
	if err != nil || body == nil {
		return doc, err
	}
	d := &decoder{prov: doc.prov}
	d.value(reflect.ValueOf(into).Elem(), body, "", firstToken(body))
	return doc, join(d.errs)
}

// Mistake is an error about the value of a key.
func (d *Document) Mistake(key, hint, format string, args ...any) *Error {
	e := d.prov.errorFor(key, fmt.Sprintf(format, args...), hint)
	e.File = d.prov.src.name
	return e
}

// Place is where the value of a key stands, such as "rules.yaml:12".
func (d *Document) Place(key string) string {
	at, _ := d.prov.find(key)
	return fmt.Sprintf("%s:%d", d.prov.src.name, at.line)
}

// Text is the file as it was read.
func (d *Document) Text() []byte { return []byte(strings.Join(d.prov.src.lines, "\n")) }
