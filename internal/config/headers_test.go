package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/header"
)

func TestHeaders(t *testing.T) {
	t.Setenv("RELAY_TOKEN", "from-env")
	want := map[string]Header{
		"authorization": {File: "/run/token", Prefix: "Bearer "},
		"x-a":           {Value: "abc"},
		"x-b":           {Value: "Bearer from-env"},
		"x-c":           {Value: "a b", Prefix: "p"},
	}
	file := `upstream:
  headers:
    authorization: {file: /run/token, prefix: "Bearer "}
    x-a: abc
    x-b: Bearer ${env:RELAY_TOKEN}
    x-c:
      value: a b
      prefix: p
  fallbacks:
    - address: "127.0.0.1:2"
      headers: {x-d: "1"}
      forward_headers: true
groups:
  forward_headers: [x-consul-token]
`
	c, err := Parse("relay.yaml", []byte(file), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c.Upstream.Headers, want) {
		t.Errorf("got %#v", c.Upstream.Headers)
	}
	entries := c.Upstream.Entries()
	if !entries[0].ForwardHeaders || !reflect.DeepEqual(entries[0].Headers, want) || !entries[1].ForwardHeaders || entries[1].Headers["x-d"].Value != "1" {
		t.Errorf("entries: %+v", entries)
	}
	if v, err := want["x-c"].Read(); v != "pa b" || err != nil {
		t.Errorf("a value with a prefix: %v, %v", v == "pa b", err)
	}

	c, err = Parse("", nil, []string{
		"upstream.headers.x-a=abc", "upstream.headers.authorization.file=/run/token", "upstream.headers.authorization.prefix='Bearer '",
		"upstream.headers.x-b=Bearer ${env:RELAY_TOKEN}", `upstream.headers.x-c={"value":"a b","prefix":"p"}`,
	})
	if err != nil || !maps.Equal(c.Upstream.Headers, want) {
		t.Errorf("by --set: %#v, %v", c.Upstream.Headers, err)
	}
}

func TestMistakesInHeaders(t *testing.T) {
	for _, tt := range []struct{ name, file, want string }{
		{"one name in both lists", "upstream:\n  headers:\n    authorization: {file: /run/token}\ngroups:\n  forward_headers: [x-a, authorization]\n", lines(
			`relay.yaml:5:26: groups.forward_headers[1]: "authorization" is also in upstream.headers`,
			`    5 |   forward_headers: [x-a, authorization]`,
			`      |                          ^`,
			`  hint: remove one of the two: what a client does not send is never filled in`)},
		{"one name in both lists, a fallback's", "upstream:\n  fallbacks: [{address: \"127.0.0.1:2\", headers: {x-a: {file: f}}}]\ngroups:\n  forward_headers: [x-a]\n", lines(
			`relay.yaml:4:21: groups.forward_headers[0]: "x-a" is also in upstream.fallbacks[0].headers`,
			`    4 |   forward_headers: [x-a]`,
			`      |                     ^`,
			`  hint: remove one of the two: what a client does not send is never filled in`)},
		{"not in lower case", "groups:\n  forward_headers: [Authorization]\n", lines(
			`relay.yaml:2:21: groups.forward_headers[0]: "Authorization" is not in lower case`,
			`    2 |   forward_headers: [Authorization]`,
			`      |                     ^`,
			`  hint: write authorization`)},
		{"gRPC's", "upstream:\n  headers:\n    grpc-timeout: {file: f}\n", lines(
			`relay.yaml:3:19: upstream.headers.grpc-timeout: "grpc-timeout" belongs to gRPC itself`,
			`    3 |     grpc-timeout: {file: f}`,
			`      |                   ^`,
			`  hint: leave it out`)},
		{"a pseudo-header", "groups:\n  forward_headers: [\":path\"]\n", lines(
			`relay.yaml:2:21: groups.forward_headers[0]: ":path" belongs to gRPC itself`,
			`    2 |   forward_headers: [":path"]`,
			`      |                     ^`,
			`  hint: leave it out`)},
		{"the relay's own", "groups:\n  forward_headers: [x-xds-relay-via]\n", lines(
			`relay.yaml:2:21: groups.forward_headers[0]: "x-xds-relay-via" is one of the relay's own`,
			`    2 |   forward_headers: [x-xds-relay-via]`,
			`      |                     ^`,
			`  hint: leave it out; relays send it by themselves`)},
		{"a proxy's word, with TLS", "downstream: {tls: {cert: a, key: b, client_ca: c}}\ngroups:\n  forward_headers: [x-forwarded-client-cert]\n", lines(
			`relay.yaml:3:21: groups.forward_headers[0]: "x-forwarded-client-cert" is what a client says of itself here, and the control plane would take it for a certificate that was verified`,
			`    3 |   forward_headers: [x-forwarded-client-cert]`,
			`      |                     ^`,
			`  hint: tell clients apart by groups.key: [identity], which comes from their certificates; or listen on loopback or a Unix socket without downstream.tls, behind the proxy that sets it`)},
		{"a proxy's word, from anywhere", "downstream: {listen: [\"unix:///run/x\", \"0.0.0.0:1\"], insecure: true}\ngroups:\n  forward_headers: [x-forwarded-client-cert]\n", lines(
			`relay.yaml:3:21: groups.forward_headers[0]: "x-forwarded-client-cert" is what a client says of itself here, and the control plane would take it for a certificate that was verified`,
			`    3 |   forward_headers: [x-forwarded-client-cert]`,
			`      |                     ^`,
			`  hint: tell clients apart by groups.key: [identity], which comes from their certificates; or listen on loopback or a Unix socket without downstream.tls, behind the proxy that sets it`)},
		{"a binary one", "groups:\n  forward_headers: [token-bin]\n", lines(
			`relay.yaml:2:21: groups.forward_headers[0]: "token-bin" would be a binary header`,
			`    2 |   forward_headers: [token-bin]`,
			`      |                     ^`,
			`  hint: use a name that does not end in -bin`)},
		{"twice", "groups:\n  forward_headers: [x-a, x-a]\n", lines(
			`relay.yaml:2:26: groups.forward_headers[1]: "x-a" is listed twice`,
			`    2 |   forward_headers: [x-a, x-a]`,
			`      |                          ^`)},
		{"with ready_types", "downstream:\n  ready_types: [CDS]\ngroups:\n  forward_headers: [x-a]\n", lines(
			`relay.yaml:2:16: downstream.ready_types: the relay has nobody's headers to ask with when groups.forward_headers is set`,
			`    2 |   ready_types: [CDS]`,
			`      |                ^`,
			`  hint: leave it out`)},
		{"nothing to forward", "upstream:\n  fallbacks:\n    - address: \"127.0.0.1:2\"\n      forward_headers: true\n", lines(
			`relay.yaml:4:24: upstream.fallbacks[0].forward_headers: there are no headers to forward`,
			`    4 |       forward_headers: true`,
			`      |                        ^`,
			`  hint: name them in groups.forward_headers`)},
		{"no value", "upstream:\n  headers:\n    x-a:\n", lines(
			`relay.yaml:3:5: upstream.headers.x-a: has no value`,
			`    3 |     x-a:`,
			`      |     ^`,
			`  hint: give it a value, or a file that holds one`)},
		{"a prefix alone", "upstream:\n  headers:\n    x-a: {prefix: p}\n", lines(
			`relay.yaml:3:10: upstream.headers.x-a: has no value`,
			`    3 |     x-a: {prefix: p}`,
			`      |          ^`,
			`  hint: give it a value, or a file that holds one`)},
		{"an unset variable", "upstream:\n  headers: {x-a: \"${env:RELAY_UNSET}\"}\n", lines(
			`relay.yaml:2:18: upstream.headers.x-a: environment variable RELAY_UNSET is not set`,
			`  hint: set it, or give a default: ${env:RELAY_UNSET:-default}`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("relay.yaml", []byte(tt.file), nil)
			checkErr(t, err, tt.want)
		})
	}
}

// TestAProxysWord: what a proxy on this host says of its client may be forwarded, if nobody else can be the client.
func TestAProxysWord(t *testing.T) {
	if _, err := Parse("relay.yaml", []byte("downstream: {insecure: true, rest: {listen: \"0.0.0.0:2\"}}\ngroups: {forward_headers: [x-forwarded-client-cert]}\n"), nil); err == nil {
		t.Error("clients that poll are let say it from anywhere")
	}
	c, err := Parse("relay.yaml", []byte("downstream: {listen: [\"unix:///run/x\", \"127.0.0.1:1\"]}\ngroups: {forward_headers: [x-forwarded-client-cert]}\n"), nil)
	if err != nil || len(c.Groups.ForwardHeaders) != 1 {
		t.Errorf("%v", err)
	}
}

// A mistake in, or near, the value of a header does not show it.
func TestMistakesShowNoValue(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		set  []string
	}{
		"a control character":  {file: "upstream:\n  headers:\n    x-a: \"canary\\n\"\n"},
		"a number":             {file: "upstream:\n  headers:\n    x-a: 31337\n"}, // "canary" has to be no number
		"a list":               {file: "upstream:\n  headers:\n    x-a: [canary]\n"},
		"an anchor":            {file: "upstream:\n  headers:\n    x-a: &x canary\n"},
		"an unknown field":     {file: "upstream:\n  headers:\n    x-a: {valeu: canary}\n"},
		"an unknown section":   {file: "upstream:\n  headers:\n    x-a: {valeu: {a: [canary]}}\n"},
		"a bad reference":      {file: "upstream:\n  headers:\n    x-a: \"${canary\"\n"},
		"a bad scheme":         {file: "upstream:\n  headers:\n    x-a: \"${canary}\"\n"},
		"a name":               {file: "upstream:\n  headers: {X-A: canary}\n"},
		"both":                 {file: "upstream:\n  headers: {x-a: {value: canary, file: f}}\n"},
		"another on the line":  {file: "upstream: {headers: {x-a: canary}, nonsense: x}\n"},
		"one before":           {file: "upstream: {nonsense: x, headers: {x-a: canary}}\n"},
		"one found later":      {file: "upstream: {headers: {x-a: canary}, address: x}\n"},
		"several lines":        {file: "upstream:\n  headers:\n    x-a: |\n      canary\n      canary\n"},
		"quoted, on two lines": {file: "upstream:\n  headers:\n    x-a: \"a\n      canary\\t\"\n"},
		"a fallback's":         {file: "upstream:\n  fallbacks: [{headers: {x-a: canary}}]\n"},
		"by --set":             {set: []string{"upstream.headers.X-A=canary"}},
		"by --set, a section":  {set: []string{`upstream.headers={"x-a":["canary"]}`}},
		"by --set, an item":    {set: []string{`upstream.headers.x-a={"valeu":"canary"}`}},
		"by --set, a field":    {set: []string{"upstream.headers.x-a.valeu=canary"}},
		"by --set, all":        {set: []string{`upstream={"headers":{"x-a":"canary"},"nonsense":"x"}`}},
		"by --set, a fallback": {set: []string{`upstream.fallbacks=[{"headers":{"x-a":"canary"}}]`}},
		"by --set, garbled":    {set: []string{`upstream.headers={"x-a":"canary"`}},
		"by --set, a bad name": {set: []string{`upstream.headers.grpc-x=canary`}},
		"by --set, a bad text": {set: []string{"upstream.headers.x-a=canary\x01"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("relay.yaml", []byte(tt.file), tt.set)
			if err == nil {
				t.Fatal("no mistake")
			}
			if text := err.Error(); strings.Contains(text, "canary") || strings.Contains(text, "31337") {
				t.Errorf("the value shows:\n%s", text)
			}
		})
	}
}

func TestHeaderFiles(t *testing.T) {
	dir := t.TempDir()
	good, long, empty := filepath.Join(dir, "good"), filepath.Join(dir, "long"), filepath.Join(dir, "empty")
	for path, text := range map[string]string{good: "\n canary \r\n", long: strings.Repeat("canary ", 2000), empty: "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := fmt.Sprintf("upstream:\n  headers:\n    x-a: {file: %s, prefix: p}\n    x-b:\n      file: %s\n    x-c: {file: %s}\n  fallbacks:\n    - {address: \"127.0.0.1:2\", headers: {x-d: {file: %s.no}}}\n",
		good, long, empty, good)
	c, err := Parse("relay.yaml", []byte(file), nil)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := c.Upstream.Headers["x-a"].Read(); string(v) != "pcanary" || err != nil {
		t.Errorf("%d bytes, %v", len(v), err)
	}
	if err := c.CheckFiles(); err != nil {
		t.Errorf("a relay would not start for want of a token: %v", err)
	}
	err = c.CheckHeaderFiles()
	var got []string
	for _, e := range All(err) {
		got = append(got, fmt.Sprintf("%d:%d %s: %s", e.Line, e.Column, e.Key, e.Msg))
	}
	want := []string{
		fmt.Sprintf("5:13 upstream.headers.x-b.file: %q has 13999 bytes, more than 8KiB", long),
		fmt.Sprintf("6:17 upstream.headers.x-c.file: %q has no value", empty),
		fmt.Sprintf("8:54 upstream.fallbacks[0].headers.x-d.file: cannot read %q: no such file or directory", good+".no"),
	}
	if !slices.Equal(got, want) || strings.Contains(err.Error(), "canary") {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A header that is set in two ways is set in the second.
func TestSetReplacesHeaders(t *testing.T) {
	c, err := Parse("relay.yaml", []byte("upstream: {headers: {x-a: {file: f, prefix: p}}}\n"), []string{"upstream.headers.x-a=v"})
	if want := map[string]Header{"x-a": {Value: header.Value("v")}}; err != nil || !maps.Equal(c.Upstream.Headers, want) {
		t.Errorf("%#v, %v", c, err)
	}
}

// TestTokenFromAPipe: a header's file that is a pipe is refused, and keeps no shutdown waiting.
func TestTokenFromAPipe(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "token")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := Header{File: fifo}.Read()
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a pipe is read")
		}
	case <-time.After(3 * time.Second):
		t.Error("reading it does not end")
	}
}
