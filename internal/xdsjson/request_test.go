package xdsjson

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

const limit = 16 << 10

func TestRequest(t *testing.T) {
	for _, text := range []string{
		`{"versionInfo": "1", "node": {"id": "a", "cluster": "c", "metadata": {"x": {"y": [1, true, null]}}}, "resourceNames": ["a", "b"], "typeUrl": "t"}`,
		`{"version_info": "1", "node": {"id": "a", "cluster": "c", "metadata": {"x": {"y": [1, true, null]}}, "build_version": "of v2"}, "resource_names": ["a", "b"], "type_url": "t", "made_up": {"z": [{}]}}`,
	} {
		req, m := Request([]byte(text), limit)
		if m != nil {
			t.Fatalf("%s: %v", text, m)
		}
		if req.GetVersionInfo() != "1" || req.GetNode().GetId() != "a" || strings.Join(req.GetResourceNames(), " ") != "a b" || req.GetTypeUrl() != "t" {
			t.Errorf("%s is read as %v", text, req)
		}
	}
}

// TestBadRequest: what is refused is refused with its place.
func TestBadRequest(t *testing.T) {
	deep := func(n int) string {
		return `{"node": {"metadata": {"x": ` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}}}`
	}
	for text, want := range map[string]struct {
		says     string
		tooLarge bool
	}{
		"":                               {"unexpected token", false},
		"{":                              {"", false},
		"<html>":                         {"line 1, column 1: ", false},
		"{\n  \"resourceNames\": [1]}":   {"line 2, column 21: ", false},
		"{} {}":                          {"line 1, column 4: ", false},
		"{\"node\": {\"id\": \"\xff\"}}": {"invalid UTF-8", false},
		`{"node": {"id": "a}`:            {"", false},
		"{\n\"node\": {\"metadata\": " + deep(100) + "}}": {"line 2, column 109: objects and lists are more than 64 deep", false},
		deep(60) + "x": {"line 1, column 152: ", false},
		`{"resourceNames": [` + strings.Repeat(`"",`, 300) + `""]}`: {"would take more than 16384 bytes", true},
		`{"versionInfo": "` + strings.Repeat("x", limit) + `"}`:     {"exceeds the limit of 16384", true},
	} {
		_, m := Request([]byte(text), limit)
		if m == nil || !strings.Contains(m.Error(), want.says) || m.TooLarge != want.tooLarge {
			t.Errorf("%.80q: %v, want %q", text, m, want.says)
		}
	}
	if _, m := Request([]byte(deep(60)), limit); m != nil {
		t.Errorf("60 deep: %v", m)
	}
}

// FuzzRequest: whatever is read is JSON, and is read again as the same; what is refused says where.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"node": {"id": "a", "metadata": {"x": [1, {"y": null}]}}, "resourceNames": ["a"], "version_info": "1:2:ab"}`,
		`{"typeUrl": "\u0041\\\"", "errorDetail": {"code": 3, "details": [{"@type": "type.googleapis.com/google.protobuf.Duration", "value": "1s"}]}}`,
		strings.Repeat("[", 100), `{"a":"` + strings.Repeat(`\`, 7) + `"}`, "{\"resource_names\":[\"\xff\"]}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		req, m := Request(text, limit)
		if m != nil {
			if m.Message == "" || m.Line < 0 || m.Line > 0 && m.Column < 1 {
				t.Errorf("%q is refused with %#v", text, m)
			}
			return
		}
		if !json.Valid(text) {
			t.Errorf("%q is read, and is no JSON", text)
		}
		again, err := protojson.Marshal(req)
		if err != nil {
			return // such as an Any of a message that is not linked
		}
		same, m := Request(again, 64*limit)
		if m != nil || !proto.Equal(req, same) {
			t.Errorf("%q is read as %v, and that as %v, %v", text, req, same, m)
		}
	})
}
