package config

import (
	"flag"
	"fmt"
	"go/doc/comment"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

const reference = "../../docs/configuration.md"

// TestReferenceIsTrue: docs/configuration.md is made of the doc comments of Config,
// and says what they say.
func TestReferenceIsTrue(t *testing.T) {
	got := writeReference(t)
	if *update {
		if err := os.WriteFile(reference, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(reference)
	if err != nil || got != string(want) {
		t.Errorf("docs/configuration.md is not what the comments of Config say (%v); run go test ./internal/config -run Reference -update", err)
	}
}

func writeReference(t *testing.T) string {
	docs := fieldDocs(t)
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(`# Configuration

The relay reads one YAML file: 'xds-relay serve -c relay.yaml'. Every key has a default and may be left out. The relay refuses
unknown and repeated keys, wrong types and values that make no sense, and reports line and column. In any value
'${env:NAME}' stands for an environment variable, '${env:NAME:-default}' for one that may be missing, and
'$$' for a dollar sign. '--set key.path=value' overrides one key; the flags '--upstream', '--listen', '--admin',
'--node-id' and '--log-level' do so for the commonest ones. Ids such as [UP-13](protocol.md#up-13) are rules of
[protocol.md](protocol.md). This page is made from the comments in internal/config.

A running relay reads its file again on SIGHUP, on 'POST /-/reload' (admin endpoint) and, with 'reload_on_change', when the
file changes. Flags and '--set' still override it. The relay first checks the whole file as 'xds-relay validate' does. If anything is
wrong, or the file sets nothing and did before, nothing changes, the log and the answer (400) say where and why, and 'xds_relay_config_last_reload_successful'
is 0. The column "change" says when a changed key takes effect. **reload**: at once, also for connected clients, and no
stream of theirs ends. **restart**: when the relay is started again; the log and the answer name the key.

A change of 'downstream.tls' concerns new connections. After a change of the connection to a control plane (its
TLS, headers, keepalive and so on) the relay makes only the connections to that control plane again, within a second, and shows the versions that it has.
'xds-relay print-config' prints every key with its value. Editors that know
'# yaml-language-server: $schema=' can use [deploy/schema/xds-relay.schema.json](../deploy/schema/xds-relay.schema.json), which
'xds-relay schema' prints, too.
`, "'", "`"))
	section(&b, docs, reflect.TypeFor[Config](), "")
	return b.String()
}

// section writes a struct's own keys, and then the sections within it.
func section(b *strings.Builder, docs map[string]string, typ reflect.Type, path string) {
	var inner []reflect.StructField
	cited := map[string]bool{}
	title := path
	if path == "" {
		title = "Top level"
	}
	fmt.Fprintf(b, "\n## %s\n", title)
	if path != "" {
		fmt.Fprintf(b, "\n%s\n", linked(oneLine(docs[typ.Name()]), cited))
	}
	b.WriteString("\n| key | default | change | |\n|---|---|---|---|\n")
	for i := range typ.NumField() {
		f := typ.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "" {
			continue
		}
		if f.Type.Kind() == reflect.Struct {
			inner = append(inner, f)
			continue
		}
		text, def, ok := strings.Cut(docs[typ.Name()+"."+f.Name], "Default: ")
		if !ok {
			def = "required."
		}
		def = strings.TrimSuffix(strings.TrimSpace(def), ".")
		change, _ := ReloadOf(child(path, key))
		fmt.Fprintf(b, "| `%s` | `%s` | %s | %s |\n", key, def, change, strings.ReplaceAll(linked(oneLine(text), cited), "|", "\\|"))
		if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
			inner = append(inner, reflect.StructField{Name: f.Name, Tag: reflect.StructTag(fmt.Sprintf("yaml:%q", key+"[]")), Type: f.Type.Elem()})
		}
		if f.Type.Kind() == reflect.Map && f.Type.Elem().Kind() == reflect.Struct {
			inner = append(inner, reflect.StructField{Name: f.Name, Tag: reflect.StructTag(fmt.Sprintf("yaml:%q", key+".NAME")), Type: f.Type.Elem()})
		}
	}
	for _, f := range inner {
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		next := key
		if path != "" {
			next = path + "." + key
		}
		section(b, docs, f.Type, next)
	}
}

// oneLine is a doc comment as text without line breaks or Go's links, and with keys in place
// of the names of fields.
func oneLine(doc string) string {
	var p comment.Parser
	p.LookupSym = func(string, string) bool { return true }
	text := (&comment.Printer{TextWidth: -1}).Text(p.Parse(doc))
	words := strings.Fields(seeMethod.ReplaceAllString(string(text), ""))
	for i, word := range words {
		name := strings.Trim(word, "().,;:")
		// A name of one word is an ordinary word elsewhere than at the beginning.
		if key := keyOf[name]; key != "" && (i == 0 || strings.Contains(key, "_")) {
			words[i] = strings.Replace(word, name, key, 1)
		}
	}
	return strings.Join(words, " ")
}

var (
	seeMethod = regexp.MustCompile(`;\s+see\s+Config\.\w+`)
	rule      = regexp.MustCompile(`\b[A-Z][A-Z0-9]*(?:-[A-Z]+)?-\d+\b`)
)

// keyOf are the keys of the fields of Config and what is in it, by the names of the fields.
var keyOf = fieldKeys(map[string]string{}, reflect.TypeFor[Config]())

func fieldKeys(keys map[string]string, typ reflect.Type) map[string]string {
	switch typ.Kind() {
	case reflect.Slice, reflect.Map:
		return fieldKeys(keys, typ.Elem())
	case reflect.Struct:
		for i := range typ.NumField() {
			f := typ.Field(i)
			if key, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); key != "" {
				keys[f.Name] = key
				fieldKeys(keys, f.Type)
			}
		}
	}
	return keys
}

// linked makes the first citation of each rule in a section a link.
func linked(text string, cited map[string]bool) string {
	return rule.ReplaceAllStringFunc(text, func(id string) string {
		if cited[id] || strings.Contains(id, "SHA") || strings.HasPrefix(id, "AES") || strings.HasPrefix(id, "UTF") {
			return id
		}
		cited[id] = true
		return "[" + id + "](protocol.md#" + strings.ToLower(id) + ")"
	})
}
