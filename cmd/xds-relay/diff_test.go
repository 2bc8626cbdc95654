package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// TestDifferenceView: fields are compared only where it is known what both sides have, and a difference that may not be
// shown is told as one.
func TestDifferenceView(t *testing.T) {
	body := func(version, text string) *bodyView {
		b := &bodyView{Version: version}
		if text != "" {
			b.Body = json.RawMessage(text)
		}
		return b
	}
	for _, tt := range []struct {
		name     string
		of       differenceView
		has, not string
	}{
		{"a field", differenceView{Client: body("1", `{"a": 1}`), Relay: body("2", `{"a": 2}`)}, "~ a: 1 → 2", "differ only"},
		{"a resource that is new", differenceView{Relay: body("2", `{"a": 2}`)}, "+ a: 2", "probably"},
		{"what is not shown", differenceView{Client: body("1", `{"a": "[redacted]"}`), Relay: body("2", `{"a": "[redacted]"}`)}, "they differ only in what is not shown", "~"},
		{"the same again", differenceView{Client: body("1", `{"a": 1}`), Relay: body("1", `{"a": 1}`)}, "version 1", "differ only"},
		{"a version that is not remembered", differenceView{Probably: true, Relay: body("2", `{"a": 2}`)}, "not known: no former version is remembered", "+ a"},
		{"a body that is not known", differenceView{Client: body("1", ""), Relay: body("2", `{"a": 2}`)}, "version 1", "+ a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.of.Name, tt.of.Step = "x", session.StepUnsent
			if err := tt.of.compare(); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			tt.of.print(&out, time.Now())
			if text := out.String(); !strings.Contains(text, tt.has) || strings.Contains(text, tt.not) {
				t.Errorf("%s\nwant %q, and not %q", text, tt.has, tt.not)
			}
		})
	}
}
