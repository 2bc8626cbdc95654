package header

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "canary-5d1c"

// TestValuesDoNotPrint: however something is printed that a value is part of (NODE-13).
func TestValuesDoNotPrint(t *testing.T) {
	type outer struct {
		Headers []Header
		Map     map[string]Value
		Pointer *Header
	}
	h := Header{Name: "authorization", Value: canary}
	o := outer{[]Header{h}, map[string]Value{"authorization": canary}, &h}
	var log bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&log, nil), slog.NewTextHandler(&log, nil)} {
		slog.New(handler).Info("m", "header", h, "headers", o.Headers, "outer", o, "value", h.Value)
	}
	asJSON, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"v": fmt.Sprintf("%v", o), "+v": fmt.Sprintf("%+v", o), "#v": fmt.Sprintf("%#v", o), "s": fmt.Sprintf("%s", []Value{h.Value}),
		"q": fmt.Sprintf("%q", h.Value), "log": log.String(), "JSON": string(asJSON), "YAML": string(asYAML),
	} {
		if strings.Contains(text, canary) {
			t.Errorf("%s shows the value: %s", what, text)
		}
		if !strings.Contains(text, "redacted") && what != "+v" && what != "v" {
			t.Errorf("%s does not say that there is one: %s", what, text)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, want := range map[string]string{
		"authorization": "", "x-consul-token": "", "a.b_c-9": "",
		"":                   "is empty",
		"Authorization":      "is not in lower case",
		"grpc-timeout":       "belongs to gRPC itself",
		":path":              "belongs to gRPC itself",
		"user-agent":         "belongs to gRPC itself",
		"x-xds-relay-via":    "is one of the relay's own",
		"x-xds-relay-stream": "is one of the relay's own",
		"token-bin":          "would be a binary header",
		"x token":            "cannot be the name of a header",
		"x-tökén":            "cannot be the name of a header",
		"x-a\r\nx-b":         "cannot be the name of a header",
	} {
		problem, hint := CheckName(name)
		if problem != want || (hint == "") != (want == "") {
			t.Errorf("%q: %q, %q; want %q", name, problem, hint, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for value, want := range map[Value]bool{"": true, "Bearer abc~": true, "a\n": false, "a\tb": false, "é": false, "a\x00": false, "\xff": false} {
		if got := value.Printable(); got != want {
			t.Errorf("%d bytes: printable %v, want %v", len(value), got, want)
		}
	}
}

func TestHide(t *testing.T) {
	headers := []Header{{"authorization", "Bearer " + canary}, {"x-short", "ab"}, {"x-empty", ""}}
	for text, want := range map[string]string{
		"token " + canary + " is not valid, " + canary: "token [redacted] is not valid, [redacted]",
		"Bearer tokens are not taken: ab":              "Bearer tokens are not taken: ab",
	} {
		if got := Hide(text, headers); got != want {
			t.Errorf("%q", got)
		}
	}
}

func TestCredential(t *testing.T) {
	for name, want := range map[string]bool{"authorization": true, "x-consul-token": true, "x-token": true, "cookie": false, "x-tokens": false} {
		if Credential(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
