package config

import (
	"flag"
	"fmt"
	"go/doc/comment"
	"os"
	"reflect"
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
	b.WriteString(`# Configuration

One YAML file, ` + "`xds-relay serve -c relay.yaml`" + `; every key may be left out. Unknown or repeated
keys, wrong types and values that make no sense are refused, with line and column. In any value
` + "`${env:NAME}`" + ` stands for an environment variable, ` + "`${env:NAME:-default}`" + ` for one that may be missing,
` + "`$$`" + ` for a dollar sign. ` + "`--set key.path=value`" + ` overrides one key, and the flags ` + "`--upstream`, `--listen`, `--admin`,\n`--node-id` and `--log-level`" + ` those with a flag of their own. Ids such as UP-13 are rules of
[protocol.md](protocol.md). This page is made from the comments in internal/config.

A relay reads its file again on SIGHUP, on ` + "`POST /-/reload`" + ` (admin endpoint) and, with ` + "`reload_on_change`" + `, when the
file changes. Flags and ` + "`--set`" + ` still go before it. All of it is checked first, as by ` + "`xds-relay validate`" + `; if anything is
wrong, nothing changes, the log and the answer (400) say where and why, and ` + "`xds_relay_config_last_reload_successful`" + `
is 0. The column "change" says what becomes of a key: **reload** takes effect at once, for clients that are connected, too, and ends
no stream of theirs; **restart** is named in the log and in the answer, and takes effect when the relay is started again. A
change of ` + "`downstream.tls`" + ` is for connections that begin after it. Where the way to a control plane changes (its
TLS, headers, keepalive and the like), only its own connections are made again, within a second and with the versions at hand.
` + "`xds-relay print-config`" + ` shows every key with the value that a file makes of it, and editors that know
` + "`# yaml-language-server: $schema=`" + ` take [deploy/schema/xds-relay.schema.json](../deploy/schema/xds-relay.schema.json), which is also what
` + "`xds-relay schema`" + ` prints.
`)
	section(&b, docs, reflect.TypeFor[Config](), "")
	return b.String()
}

// section writes a struct's own keys, and then the sections within it.
func section(b *strings.Builder, docs map[string]string, typ reflect.Type, path string) {
	var inner []reflect.StructField
	title := path
	if path == "" {
		title = "Top level"
	}
	fmt.Fprintf(b, "\n## %s\n", title)
	if path != "" {
		fmt.Fprintf(b, "\n%s\n", oneLine(docs[typ.Name()]))
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
		fmt.Fprintf(b, "| `%s` | `%s` | %s | %s |\n", key, def, change, strings.ReplaceAll(oneLine(text), "|", "\\|"))
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

// oneLine is a doc comment as text without line breaks or Go's links.
func oneLine(doc string) string {
	var p comment.Parser
	p.LookupSym = func(string, string) bool { return true }
	text := (&comment.Printer{TextWidth: -1}).Text(p.Parse(doc))
	return strings.Join(strings.Fields(string(text)), " ")
}
