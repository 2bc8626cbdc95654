package console

import (
	"slices"
	"testing"
)

func TestDifferences(t *testing.T) {
	for _, tt := range []struct {
		name, was, is string
		want          []string
	}{
		{"nothing", `{"a": [1, {"b": "c"}]}`, `{"a": [1, {"b": "c"}]}`, nil},
		{"values", `{"timeout": "5s", "n": 1, "gone": true}`, `{"timeout": "10s", "n": 1, "added": {"a": [1]}}`, []string{
			`+ added: {"a":[1]}`, `- gone: true`, `~ timeout: "5s" → "10s"`,
		}},
		{"another kind", `{"a": [1]}`, `{"a": {"b": 1}}`, []string{`~ a: [1] → {"b":1}`}},
		{"by name", `{"hosts": [{"name": "a", "x": 1}, {"name": "b", "x": 1}]}`, `{"hosts": [{"name": "b", "x": 2}, {"name": "c"}, {"name": "a", "x": 1}]}`, []string{
			`~ hosts["b"].x: 1 → 2`, `+ hosts["c"]: {"name":"c"}`,
		}},
		{"an element goes from the middle", `{"e": [{"p": 1}, {"p": 2}, {"p": 3}]}`, `{"e": [{"p": 1}, {"p": 3}]}`, []string{`- e[1]: {"p":2}`}},
		{"an element comes first", `{"e": [{"p": 1}, {"p": 2}]}`, `{"e": [{"p": 0}, {"p": 1}, {"p": 2}]}`, []string{`+ e[0]: {"p":0}`}},
		{"one of two alike goes", `{"e": [1, 1, 2]}`, `{"e": [1, 2]}`, []string{`- e[1]: 1`}},
		{"one alike comes", `{"e": [1, 2]}`, `{"e": [1, 2, 1]}`, []string{`+ e[2]: 1`}},
		{"a field of an element", `{"e": [{"p": 1, "w": 1}, {"p": 2, "w": 1}]}`, `{"e": [{"p": 1, "w": 1}, {"p": 2, "w": 5}]}`, []string{`~ e[1].w: 1 → 5`}},
		{"order", `{"e": ["a", "b"]}`, `{"e": ["b", "a"]}`, []string{`~ e: [these] → [the same, in another order]`}},
		{"no escapes of HTML", `{"a": "<b>"}`, `{"a": "&"}`, []string{`~ a: "<b>" → "&"`}},
	} {
		changes, err := Differences([]byte(tt.was), []byte(tt.is))
		var got []string
		for _, c := range changes {
			got = append(got, c.String())
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
	for _, bad := range [][2]string{{"{", "{}"}, {"{}", "{"}} {
		if _, err := Differences([]byte(bad[0]), []byte(bad[1])); err == nil {
			t.Errorf("%q is taken for JSON", bad)
		}
	}
}
