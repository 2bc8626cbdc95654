package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/header"
)

// keys are all keys of a section that are no sections themselves.
func keys(typ reflect.Type, at string) (all []string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		switch name := yamlName(f); {
		case name == "":
		case f.Type.Kind() == reflect.Struct:
			all = append(all, keys(f.Type, child(at, name))...)
		default:
			all = append(all, child(at, name))
		}
	}
	return all
}

// TestEveryKeyIsClassified: of each key it is decided whether a change of it takes effect
// at once.
func TestEveryKeyIsClassified(t *testing.T) {
	all := keys(reflect.TypeFor[Config](), "")
	for _, key := range all {
		if r := reloads[key]; r != ReloadNow && r != ReloadRestart {
			t.Errorf("reload.go does not say whether a change of %s is reloaded or needs a restart", key)
		}
	}
	of := keys(reflect.TypeFor[TypeUpstream](), "upstream.by_type")
	for key := range reloads {
		if !slices.Contains(all, key) && !slices.Contains(of, key) && key != "upstream.by_type.tls" {
			t.Errorf("reload.go has %s, which is no key", key)
		}
	}
	if len(all) < 90 {
		t.Errorf("only %d keys are looked at", len(all))
	}
}

func parsed(t *testing.T, text string, set ...string) *Config {
	t.Helper()
	c, err := Parse("relay.yaml", []byte(text), set)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDiff: each key that differs, with both values and none of a header's.
func TestDiff(t *testing.T) {
	a := parsed(t, `
upstream:
  address: 127.0.0.1:1
  headers: {x-a-token: canary-one, x-b: {file: /b}}
  fallbacks: [{address: 127.0.0.1:2}, {address: 127.0.0.1:3}]
  node: {metadata: {team: blue}}
downstream: {ready_types: [CDS]}
groups: {max: 5}
`)
	b := parsed(t, `
upstream:
  address: 127.0.0.1:9
  headers: {x-a-token: canary-two, x-c: {file: /c, prefix: "Bearer "}}
  fallbacks: [{address: 127.0.0.1:2, mode: sotw}]
  node: {metadata: {team: red}}
downstream: {ready_types: [CDS, LDS]}
groups: {max: 6}
timers: {ack_timeout: 3s}
`)
	var got []string
	for _, c := range a.Diff(b) {
		got = append(got, fmt.Sprintf("%v %s", c, c.Reload))
	}
	want := []string{
		`upstream.address: 127.0.0.1:1 -> 127.0.0.1:9 reload`,
		`upstream.headers.x-a-token.value: [redacted] -> [redacted] (another one) reload`,
		`upstream.headers.x-b: {value: "", file: /b, prefix: ""} -> none reload`,
		`upstream.headers.x-c: none -> {value: "", file: /c, prefix: "Bearer "} reload`,
		`upstream.fallbacks[0].mode: "" -> sotw reload`,
		`upstream.fallbacks[1]: {address: "127.0.0.1:3", insecure: false, tls: {ca: "", cert: "", key: "", server_name: "", alpn: "", spiffe: {workload_api: "", trust_domains: [], server_id: ""}}, headers: {}, forward_headers: false, mode: "", last_resort: null} -> none reload`,
		`upstream.node.metadata.team: blue -> red restart`,
		`downstream.ready_types: [CDS] -> [CDS, LDS] restart`,
		`groups.max: 5 -> 6 restart`,
		`timers.ack_timeout: 10s -> 3s reload`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if same := b.Diff(parsed(t, "timers: {ack_timeout: 3000ms}\n", "upstream.address=127.0.0.1:9")); len(same) != 6 {
		t.Errorf("got %v", same)
	}
	if self := a.Diff(a); len(self) != 0 {
		t.Errorf("a configuration differs from itself: %v", self)
	}
}

// TestKeeping: what needs a restart stays, in every key, and everything else changes.
func TestKeeping(t *testing.T) {
	running, wanted := Default(), fullConfig()
	got := wanted.Keeping(&running)
	for _, c := range running.Diff(got) {
		if c.Reload != ReloadNow {
			t.Errorf("%v: changed although it needs a restart", c)
		}
	}
	for _, c := range got.Diff(&wanted) {
		if c.Reload != ReloadRestart {
			t.Errorf("%v: kept although it could change", c)
		}
	}
	if len(running.Diff(got)) < 40 || len(got.Diff(&wanted)) < 20 {
		t.Errorf("%d keys changed, %d stayed: too few to tell anything", len(running.Diff(got)), len(got.Diff(&wanted)))
	}
}

// TestPrintedConfigIsRead: what is printed with secrets reads back to the same, and without
// them shows none.
func TestPrintedConfigIsRead(t *testing.T) {
	full := fullConfig()
	tricky := Default()
	tricky.Instance = "a$$b"
	tricky.Upstream.Node.ID = "007"
	tricky.Upstream.Node.Metadata = map[string]any{"n": float64(3), "yes": "yes", "list": []any{"a", map[string]any{"k": true}}, "empty": nil}
	tricky.Upstream.Headers = map[string]Header{"authorization": {Value: "canary $1: #x", Prefix: "Bearer "}, "x-file": {File: "/tok en"}}
	tricky.Upstream.Fallbacks = []Fallback{{Address: "127.0.0.1:7", Headers: map[string]Header{"x-api-token": {Value: header.Value("canary-2")}}}}
	tricky.Upstream.CoalesceWindow = 1500 * time.Microsecond
	for name, c := range map[string]Config{"defaults": Default(), "full": full, "tricky": tricky} {
		for format, print := range map[string]func(bool) ([]byte, error){"yaml": c.YAML, "json": c.JSON} {
			out, err := print(true)
			if err != nil {
				t.Fatal(err)
			}
			back, err := Parse(name, out, nil)
			if err != nil {
				t.Errorf("%s %s: cannot be read: %v\n%s", name, format, err, out)
				continue
			}
			if diff := c.Diff(back); len(diff) > 0 {
				t.Errorf("%s %s: %v\n%s", name, format, diff, out)
			}
			if out, _ := print(false); strings.Contains(string(out), "canary") {
				t.Errorf("%s %s shows a secret:\n%s", name, format, out)
			}
			if format == "json" && !json.Valid(out) {
				t.Errorf("%s: not JSON:\n%s", name, out)
			}
		}
	}
	c := Default()
	c.Upstream.Address = "https://user:canary@host:1"
	if out, _ := c.YAML(false); strings.Contains(string(out), "canary") || !strings.Contains(string(out), "[redacted]@host") {
		t.Errorf("an address shows its userinfo:\n%s", out)
	}
}
