package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestByTypeIsChecked: each mistake in upstream.by_type is one line that says where it is.
func TestByTypeIsChecked(t *testing.T) {
	const a = `{name: a, types: [EDS], address: "127.0.0.1:1"}`
	var many []string
	for i := range maxByType + 1 {
		many = append(many, fmt.Sprintf(`{name: n%d, types: [type.googleapis.com/t%d], address: "127.0.0.1:1"}`, i, i))
	}
	for name, c := range map[string]struct {
		items string
		want  []string
	}{
		"one":                  {a, nil},
		"one address for two":  {a + `, {name: b, types: [SDS], address: "127.0.0.1:1"}`, nil},
		"a type of two":        {a + `, {name: b, types: [eds, SDS], address: "127.0.0.1:2"}`, []string{`upstream.by_type[1].types[0]: "eds" is listed in upstream.by_type[0], too; a type has one control plane`}},
		"a type twice":         {`{name: a, types: [EDS, eds], address: "127.0.0.1:1"}`, []string{`upstream.by_type[0].types[1]: "eds" is listed twice`}},
		"no type":              {`{name: a, address: "127.0.0.1:1"}`, []string{`upstream.by_type[0].types: lists no type`}},
		"no type at all":       {`{name: a, types: [nonsense], address: "127.0.0.1:1"}`, []string{`upstream.by_type[0].types[0]: "nonsense" is neither`}},
		"no name":              {`{types: [EDS], address: "127.0.0.1:1"}`, []string{`upstream.by_type[0].name: "" cannot be`}},
		"a name for no metric": {`{name: A/b, types: [EDS], address: "127.0.0.1:1"}`, []string{`upstream.by_type[0].name: "A/b" cannot be`}},
		"one name for two":     {a + `, {name: a, types: [SDS], address: "127.0.0.1:2"}`, []string{`upstream.by_type[1].name: "a" is the name of upstream.by_type[0], too`}},
		"no address":           {`{name: a, types: [EDS]}`, []string{`upstream.by_type[0].address:`}},
		"plaintext":            {`{name: a, types: [EDS], address: "eds:1"}`, []string{`upstream.by_type[0].address: "eds:1" is not on this host and would be spoken to in plaintext`}},
		"plaintext, secured":   {`{name: a, types: [EDS], address: "eds:1", tls: {ca: /ca}, fallbacks: [{address: "eds:2"}]}`, []string{`upstream.by_type[0].fallbacks[0].address: "eds:2" is not on this host`}},
		"a fallback twice":     {`{name: a, types: [EDS], address: "127.0.0.1:1", fallbacks: [{address: "127.0.0.1:1"}]}`, []string{`upstream.by_type[0].fallbacks[0].address: "127.0.0.1:1" is listed twice`}},
		"no such services":     {`{name: a, types: [EDS], address: "127.0.0.1:1", services: all}`, []string{`upstream.by_type[0].services:`}},
		"no own service":       {`{name: a, types: [EDS, type.googleapis.com/my.Type], address: "127.0.0.1:1", services: per_type}`, []string{`upstream.by_type[0].types[1]: "type.googleapis.com/my.Type" has no discovery service of its own`}},
		"nothing to forward":   {`{name: a, types: [EDS], address: "127.0.0.1:1", forward_headers: true}`, []string{`upstream.by_type[0].forward_headers: there are no headers to forward`}},
		"a bad header":         {`{name: a, types: [EDS], address: "127.0.0.1:1", headers: {X-A: b}}`, []string{`upstream.by_type[0].headers.X-A:`}},
		"too many":             {strings.Join(many, ", "), []string{`upstream.by_type: has 17 items, at most 16 are possible`}},
	} {
		t.Run(name, func(t *testing.T) {
			text := "upstream: {by_type: [" + c.items + "]}\n"
			config, err := Parse("relay.yaml", []byte(text), nil)
			if err == nil {
				err = config.Validate()
			}
			got := All(err)
			if len(got) != len(c.want) {
				t.Fatalf("got %v, want %d mistakes", err, len(c.want))
			}
			for i, want := range c.want {
				if text := got[i].Error(); !strings.Contains(text, want) {
					t.Errorf("got %q, want %q", text, want)
				}
			}
		})
	}
}

func TestSources(t *testing.T) {
	c := parsed(t, `
upstream:
  address: 127.0.0.1:1
  mode: sotw
  node: {id: relay}
  fallbacks: [{address: 127.0.0.1:2}]
  by_type:
    - {name: a, types: [EDS], address: 127.0.0.1:3, mode: delta, fallbacks: [{address: 127.0.0.1:1}]}
    - {name: b, types: [SDS], address: 127.0.0.1:1, services: per_type, node: {id: other}}
`)
	var got []string
	for _, s := range c.Upstream.Sources() {
		for _, e := range s.Entries {
			got = append(got, fmt.Sprint(s.Name, s.PerType, s.Node.ID, " ", e.Section, " ", e.Name, " ", e.Mode))
		}
	}
	want := []string{
		"falserelay upstream 127.0.0.1:1 sotw", "falserelay upstream.fallbacks[0] 127.0.0.1:2 sotw",
		"afalserelay upstream.by_type[0] a/127.0.0.1:3 delta", "afalserelay upstream.by_type[0].fallbacks[0] a/127.0.0.1:1 sotw",
		"btrueother upstream.by_type[1] b/127.0.0.1:1 sotw",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for name, want := range map[string]int{"CDS": 0, "EDS": 1, "SDS": 2} {
		if got := c.Upstream.SourceOf(typeURLOf(name)); got != want {
			t.Errorf("%s is asked of source %d, want %d", name, got, want)
		}
	}
}

// TestReloadOfByType: addresses are reloaded, and an item that is another one is not.
func TestReloadOfByType(t *testing.T) {
	const format = "upstream: {by_type: [{name: %s, types: [%s], address: \"127.0.0.1:%d\"}%s]}\n"
	running := parsed(t, fmt.Sprintf(format, "a", "EDS", 1, ""))
	for name, c := range map[string]struct {
		text    string
		changed int // the address in force
		waiting []string
	}{
		"an address":         {fmt.Sprintf(format, "a", "EDS", 2, ""), 2, nil},
		"a type":             {fmt.Sprintf(format, "a", "EDS, SDS", 1, ""), 1, []string{"upstream.by_type[0].types"}},
		"a type and address": {fmt.Sprintf(format, "a", "SDS", 2, ""), 1, []string{"upstream.by_type[0].types", "upstream.by_type[0].address"}},
		"one more":           {fmt.Sprintf(format, "a", "EDS", 2, `, {name: b, types: [SDS], address: "127.0.0.1:3"}`), 1, []string{"upstream.by_type[0].address", "upstream.by_type[1]"}},
	} {
		t.Run(name, func(t *testing.T) {
			wanted := parsed(t, c.text)
			next := wanted.Keeping(running)
			if got, want := next.Upstream.ByType[0].Address, fmt.Sprintf("127.0.0.1:%d", c.changed); got != want || len(next.Upstream.ByType) != 1 {
				t.Errorf("in force is %+v, want the address %s", next.Upstream.ByType, want)
			}
			var waiting []string
			for _, c := range next.Diff(wanted) {
				waiting = append(waiting, c.Key)
			}
			if !slices.Equal(waiting, c.waiting) {
				t.Errorf("%v wait for a restart, want %v", waiting, c.waiting)
			}
		})
	}
}
