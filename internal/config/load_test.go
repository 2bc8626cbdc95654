package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// lines joins its arguments; one per line keeps carets readable.
func lines(s ...string) string { return strings.Join(s, "\n") }

func checkErr(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want:\n%s", want)
	}
	if err.Error() != want {
		t.Errorf("got:\n%s\nwant:\n%s", err, want)
	}
	if len(All(err)) == 0 {
		t.Errorf("not an *Error: %T", err)
	}
}

func TestMistakesInTheFile(t *testing.T) {
	t.Setenv("RELAY_WORD", "word")
	for _, tt := range []struct {
		name string
		file string
		want string
	}{
		{"an unknown field, nothing near", "upstream:\n  backoff:\n    grce: 5s\n", lines(
			`relay.yaml:3:5: unknown field "grce"`,
			`    3 |     grce: 5s`,
			`      |     ^`,
			`  hint: known fields of upstream.backoff: initial, factor, jitter, max`)},
		{"an unknown field, mistyped", "timers:\n  setle: 5s\n", lines(
			`relay.yaml:2:3: unknown field "setle"`,
			`    2 |   setle: 5s`,
			`      |   ^`,
			`  hint: did you mean "settle"?`)},
		{"an unknown field of the file", "é: {a: 1}\n", lines(
			`relay.yaml:1:1: unknown field "é"`,
			`    1 | é: {a: 1}`,
			`      | ^`,
			`  hint: known fields of the file: apiVersion, instance, upstream, downstream, groups, passthrough, authz, types, timers, cache, version_key_file, reload_on_change, admin, metrics, log, tracing`)},
		{"a duplicate field", "log:\n  level: info\n  format: json\n  level: warn\n", lines(
			`relay.yaml:4:3: duplicate field "level"`,
			`    4 |   level: warn`,
			`      |   ^`,
			`  hint: it is already on line 2; keep one`)},
		{"a section twice", "log: {level: info}\nlog: {level: warn}\n", lines(
			`relay.yaml:2:1: duplicate field "log"`,
			`    2 | log: {level: warn}`,
			`      | ^`,
			`  hint: it is already on line 1; keep one`)},
		{"a duplicate key of metadata", "upstream: {node: {metadata: {a: 1, a: 2}}}\n", lines(
			`relay.yaml:1:36: duplicate field "a"`,
			`    1 | upstream: {node: {metadata: {a: 1, a: 2}}}`,
			`      |                                    ^`,
			`  hint: it is already on line 1; keep one`)},
		{"a duration without a unit", "timers:\n  settle: 30\n", lines(
			`relay.yaml:2:11: timers.settle: wants a duration such as 30s, found 30`,
			`    2 |   settle: 30`,
			`      |           ^`,
			`  hint: add a unit: ms, s, m or h`)},
		{"a duration that is none", "timers: {settle: soon}\n", lines(
			`relay.yaml:1:18: timers.settle: wants a duration such as 30s, found "soon"`,
			`    1 | timers: {settle: soon}`,
			`      |                  ^`,
			`  hint: units are ms, s, m and h`)},
		{"a size that is none", "downstream:\n  max_name_bytes: 4KB\n", lines(
			`relay.yaml:2:19: downstream.max_name_bytes: wants a size such as 64MiB, found "4KB"`,
			`    2 |   max_name_bytes: 4KB`,
			`      |                   ^`,
			`  hint: units are B, KiB, MiB, GiB and TiB`)},
		{"a number for text", "instance: 007\n", lines(
			`relay.yaml:1:11: instance: wants text, found 007`,
			`    1 | instance: 007`,
			`      |           ^`,
			`  hint: put it in quotes: "007"`)},
		{"text for a number", "groups: {max: \"9\"}\n", lines(
			`relay.yaml:1:15: groups.max: wants a whole number, found "9"`,
			`    1 | groups: {max: "9"}`,
			`      |               ^`)},
		{"a fraction for a whole number", "groups: {max: 1.9}\n", lines(
			`relay.yaml:1:15: groups.max: wants a whole number, found 1.9`,
			`    1 | groups: {max: 1.9}`,
			`      |               ^`)},
		{"a number beyond 64 bits", "groups: {max: 99999999999999999999}\n", lines(
			`relay.yaml:1:15: groups.max: wants a whole number, found "99999999999999999999"`,
			`    1 | groups: {max: 99999999999999999999}`,
			`      |               ^`)},
		{"not a number", "upstream: {backoff: {jitter: .nan}}\n", lines(
			`relay.yaml:1:30: upstream.backoff.jitter: wants a number, found .nan`,
			`    1 | upstream: {backoff: {jitter: .nan}}`,
			`      |                              ^`)},
		{"yes for true", "upstream: {insecure: yes}\n", lines(
			`relay.yaml:1:22: upstream.insecure: wants true or false, found "yes"`,
			`    1 | upstream: {insecure: yes}`,
			`      |                      ^`)},
		{"a list for text", "instance:\n  - a\n", lines(
			`relay.yaml:2:3: instance: wants text, found a list`,
			`    2 |   - a`,
			`      |   ^`)},
		{"text for a list", "downstream:\n  listen: :18000\n", lines(
			`relay.yaml:2:11: downstream.listen: wants a list, found ":18000"`,
			`    2 |   listen: :18000`,
			`      |           ^`,
			`  hint: write it as [a, b], or one per line after a dash`)},
		{"text for a section", "log: info\n", lines(
			`relay.yaml:1:6: log: wants a mapping, found "info"`,
			`    1 | log: info`,
			`      |      ^`,
			`  hint: write name: value lines, indented`)},
		{"a list for the file", "- a\n", lines(
			`relay.yaml:1:1: wants a mapping, found a list`,
			`    1 | - a`,
			`      | ^`,
			`  hint: write name: value lines, indented`)},
		{"text for metadata", "upstream: {node: {metadata: x}}\n", lines(
			`relay.yaml:1:29: upstream.node.metadata: wants a mapping, found "x"`,
			`    1 | upstream: {node: {metadata: x}}`,
			`      |                             ^`,
			`  hint: write name: value lines, indented`)},
		{"metadata that a double cannot hold", "upstream: {node: {metadata: {id: 9007199254740993}}}\n", lines(
			`relay.yaml:1:34: upstream.node.metadata.id: number too large to travel unchanged`,
			`    1 | upstream: {node: {metadata: {id: 9007199254740993}}}`,
			`      |                                  ^`,
			`  hint: put it in quotes to send it as text`)},
		{"metadata that JSON cannot hold", "upstream: {node: {metadata: {id: .inf, 5: a}}}\n", lines(
			`relay.yaml:1:34: upstream.node.metadata.id: cannot send .inf`,
			`    1 | upstream: {node: {metadata: {id: .inf, 5: a}}}`,
			`      |                                  ^`,
			`  hint: use text, a number, true, false, a list or a mapping`,
			`relay.yaml:1:40: upstream.node.metadata: a key must be text, found 5`,
			`    1 | upstream: {node: {metadata: {id: .inf, 5: a}}}`,
			`      |                                        ^`,
			`  hint: put it in quotes: "5"`)},
		{"a setting without a value", "upstream:\n  address:\n  types:\n  keepalive:\n", lines(
			`relay.yaml:2:3: upstream.address: has no value`,
			`    2 |   address:`,
			`      |   ^`,
			`  hint: remove the line to keep the default, or write "" for empty`,
			`relay.yaml:3:3: upstream.types: has no value`,
			`    3 |   types:`,
			`      |   ^`,
			`  hint: remove the line to keep the default, or write [] for an empty list`,
			`relay.yaml:4:3: upstream.keepalive: has no value`,
			`    4 |   keepalive:`,
			`      |   ^`,
			`  hint: remove the line to keep the default`)},
		{"an alias", "instance: &a x\nversion_key_file: *a\n", lines(
			`relay.yaml:1:11: instance: anchors, aliases and tags are not supported`,
			`    1 | instance: &a x`,
			`      |           ^`,
			`  hint: write the value out`,
			`relay.yaml:2:19: version_key_file: anchors, aliases and tags are not supported`,
			`    2 | version_key_file: *a`,
			`      |                   ^`,
			`  hint: write the value out`)},
		{"a tag", "instance: !!str 5\n", lines(
			`relay.yaml:1:11: instance: anchors, aliases and tags are not supported`,
			`    1 | instance: !!str 5`,
			`      |           ^`,
			`  hint: write the value out`)},
		{"a merge key", "log:\n  <<: {level: info}\n", lines(
			`relay.yaml:2:3: log: anchors, aliases, tags, merge keys and complex keys are not supported`,
			`    2 |   <<: {level: info}`,
			`      |   ^`,
			`  hint: write the value out`)},
		{"broken YAML", "log:\n  level: 'info\n", lines(
			`relay.yaml:2:10: could not find end character of single-quoted text`,
			`    2 |   level: 'info`,
			`      |          ^`)},
		{"a tab for indentation", "log:\n\tlevel: info\n", lines(
			`relay.yaml:2:1: a tab, where YAML takes spaces only`,
			`    2 | →level: info`,
			`      | ^`,
			`  hint: indent the line with spaces; → stands for the tab`)},
		{"a tab after spaces", "log:\n  level: info\n  \tformat: json\n", lines(
			`relay.yaml:3:3: a tab, where YAML takes spaces only`,
			`    3 |   →format: json`,
			`      |   ^`,
			`  hint: indent the line with spaces; → stands for the tab`)},
		{"a tab before the first key", "\tlog:\n", lines(
			`relay.yaml:1:1: a tab, where YAML takes spaces only`,
			`    1 | →log:`,
			`      | ^`,
			`  hint: indent the line with spaces; → stands for the tab`)},
		{"a tab in a text over two lines", "instance: \"a\n\tb\"\n", lines(
			`relay.yaml:2:1: a tab, where YAML takes spaces only`,
			`    2 | →b"`,
			`      | ^`,
			`  hint: indent the line with spaces; → stands for the tab`)},
		{"a tab in a block", "upstream:\n  address: |\n    a\n\tb\n", lines(
			`relay.yaml:4:1: a tab, where YAML takes spaces only`,
			`    4 | →b`,
			`      | ^`,
			`  hint: indent the line with spaces; → stands for the tab`)},
		{"a value after a tab", "timers:\n  settle:\tloud\n", lines(
			`relay.yaml:2:11: timers.settle: wants a duration such as 30s, found "loud"`,
			`    2 |   settle:→loud`,
			`      |           ^`,
			`  hint: units are ms, s, m and h`)},
		{"a mapping after a tab", "timers:\t{settle: loud}\n", lines(
			`relay.yaml:1:18: timers.settle: wants a duration such as 30s, found "loud"`,
			`    1 | timers:→{settle: loud}`,
			`      |                  ^`,
			`  hint: units are ms, s, m and h`)},
		{"a second document", "log: {level: info}\n---\nlog: {level: warn}\n", lines(
			`relay.yaml:3:1: a second YAML document`,
			`    3 | log: {level: warn}`,
			`      | ^`,
			`  hint: keep one document per file`)},
		{"another format", "apiVersion: xds-relay/v2\nupstreams: []\n", lines(
			`relay.yaml:1:13: apiVersion: "xds-relay/v2" is not a format this version reads`,
			`    1 | apiVersion: xds-relay/v2`,
			`      |             ^`,
			`  hint: write apiVersion: xds-relay/v1alpha1, or use the release that the file was written for`)},
		{"not UTF-8", "log: {}\n# caf\xe9\n", lines(
			`relay.yaml:2:1: the text is not UTF-8`,
			`  hint: save the file as UTF-8`)},
		{"an unset variable", "upstream:\n  node: {id: \"${env:RELAY_UNSET}\"}\n", lines(
			`relay.yaml:2:14: upstream.node.id: environment variable RELAY_UNSET is not set`,
			`    2 |   node: {id: "${env:RELAY_UNSET}"}`,
			`      |              ^`,
			`  hint: set it, or give a default: ${env:RELAY_UNSET:-default}`)},
		{"a reference that is not to the environment", "instance: ${HOME}\n", lines(
			`relay.yaml:1:11: instance: unknown reference "${HOME}"`,
			`    1 | instance: ${HOME}`,
			`      |           ^`,
			"  hint: write ${env:NAME} or ${env:NAME:-default}; a literal $ is written $$")},
		{"a reference without an end", "instance: ${env:HOME\n", lines(
			`relay.yaml:1:11: instance: "${env:HOME" has no closing brace`,
			`    1 | instance: ${env:HOME`,
			`      |           ^`,
			"  hint: write ${env:NAME} or ${env:NAME:-default}; a literal $ is written $$")},
		{"a reference in braces without quotes", "upstream: {node: {id: ${env:RELAY_WORD}}}\n", lines(
			`relay.yaml:1:24: ',' or '}' must be specified`,
			`    1 | upstream: {node: {id: ${env:RELAY_WORD}}}`,
			`      |                        ^`,
			`  hint: inside [...] and {...} put the reference in quotes: "${env:NAME}"`)},
		{"a variable of the wrong type", "timers:\n  settle: ${env:RELAY_WORD}\n", lines(
			`relay.yaml:2:11: timers.settle: wants a duration such as 30s, found "word" (from ${env:RELAY_WORD})`,
			`    2 |   settle: ${env:RELAY_WORD}`,
			`      |           ^`,
			`  hint: units are ms, s, m and h`)},
		{"a variable with a bad value", "upstream:\n  address: ${env:RELAY_WORD}\n", lines(
			`relay.yaml:2:12: upstream.address: "word" has no port; write host:port (from ${env:RELAY_WORD})`,
			`    2 |   address: ${env:RELAY_WORD}`,
			`      |            ^`)},
		{"far out in a long line", "instance: " + strings.Repeat("x", 300) + "," + strings.Repeat("y", 60) + "\n", lines(
			`relay.yaml:1:11: instance: "`+strings.Repeat("x", 80)+`…" cannot be a name in a header`,
			`    1 | instance: `+strings.Repeat("x", 89)+`…`,
			`      |           ^`,
			`  hint: use at most 253 printable ASCII characters, no space, no comma`)},
		{"all mistakes at once, in order", "log: {level: loud}\nuptsream: {}\ngroups: {max: x}\n", lines(
			`relay.yaml:2:1: unknown field "uptsream"`,
			`    2 | uptsream: {}`,
			`      | ^`,
			`  hint: did you mean "upstream"?`,
			`relay.yaml:3:15: groups.max: wants a whole number, found "x"`,
			`    3 | groups: {max: x}`,
			`      |               ^`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("relay.yaml", []byte(tt.file), nil)
			checkErr(t, err, tt.want)
		})
	}
}

func TestGoodFiles(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		change     func(*Config)
	}{
		{"empty", "", func(*Config) {}},
		{"only comments", "# nothing\n", func(*Config) {}},
		{"a document start", "---\nlog: {level: warn}\n", func(c *Config) { c.Log.Level = LogLevelWarn }},
		{"a YAML directive", "%YAML 1.2\n---\nlog: {level: warn}\n", func(c *Config) { c.Log.Level = LogLevelWarn }},
		{"a byte order mark and Windows lines", "\ufefflog:\r\n  level: warn\r\n", func(c *Config) { c.Log.Level = LogLevelWarn }},
		{"a section with all its lines commented out", "upstream:\n  # address: x:1\nlog:\n", func(*Config) {}},
		{"JSON", `{"log": {"level": "warn"}, "groups": {"max": 3}}`, func(c *Config) { c.Log.Level, c.Groups.Max = LogLevelWarn, 3 }},
		{"an empty admin address", "admin: {listen: \"\"}\n", func(c *Config) { c.Admin.Listen = "" }},
		{"a list replaces the default", "downstream: {listen: [\"localhost:1\"]}\n", func(c *Config) { c.Downstream.Listen = []string{"localhost:1"} }},
		{"a switch in quotes", "upstream: {explicit_missing: \"true\"}\n", func(c *Config) { c.Upstream.ExplicitMissing = SwitchOn }},
		{"a whole number for a fraction", "upstream: {backoff: {factor: 2}}\n", func(c *Config) { c.Upstream.Backoff.Factor = 2 }},
		{"a null override", "types: [{type_url: CDS, full_state: null}]\n", func(c *Config) { c.Types = []TypeOverride{{TypeURL: "CDS"}} }},
		{"text over several lines", "upstream: \n  node:\n    cluster: |-\n      a\n      b\n", func(c *Config) { c.Upstream.Node.Cluster = "a\nb" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse("relay.yaml", []byte(tt.file), nil)
			if err != nil {
				t.Fatal(err)
			}
			want := Default()
			tt.change(&want)
			got.prov = nil
			if !reflect.DeepEqual(*got, want) {
				t.Errorf("got  %+v\nwant %+v", *got, want)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if c, err := Load("", []string{"log.level=warn"}); err != nil || c.Log.Level != LogLevelWarn {
		t.Errorf("no file: %+v, %v", c, err)
	}
	good := filepath.Join(dir, "relay.yaml")
	if err := os.WriteFile(good, []byte("log: {level: warn}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(good, []string{"log.level=error"}); err != nil || c.Log.Level != LogLevelError {
		t.Errorf("file and --set: %+v, %v", c, err)
	}

	missing := filepath.Join(dir, "missing.yaml")
	_, err := Load(missing, nil)
	checkErr(t, err, missing+": cannot read the configuration: no such file or directory\n  hint: check the path; only without -c do the defaults apply")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error("the cause is lost")
	}
	_, err = Load(dir, nil)
	checkErr(t, err, dir+": cannot read the configuration: is a directory\n  hint: check the path and the permissions")

	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, []byte(strings.Repeat("#", maxFileBytes+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Load(big, nil)
	checkErr(t, err, big+": cannot read the configuration: more than 1MiB\n  hint: check the path and the permissions")
}

func TestErrorFields(t *testing.T) {
	_, err := Parse("relay.yaml", []byte("log:\n  level: loud\n"), []string{"groups.max=-1"})
	all := All(err)
	if len(all) != 2 {
		t.Fatalf("got %v", err)
	}
	if e := all[0]; e.File != "relay.yaml" || e.Line != 2 || e.Column != 10 || e.Key != "log.level" || e.Origin != "" {
		t.Errorf("got %+v", e)
	}
	if e := all[1]; e.File != "" || e.Line != 0 || e.Key != "groups.max" || e.Origin != "--set groups.max=-1" {
		t.Errorf("got %+v", e)
	}
	if All(nil) != nil || All(errors.New("x")) != nil {
		t.Error("All finds errors that are not there")
	}
}

func TestReportIsBounded(t *testing.T) {
	_, err := Parse("relay.yaml", []byte(strings.Repeat("- a\n", 10)), nil)
	if n := len(All(err)); n != 1 {
		t.Errorf("%d errors", n)
	}
	var b strings.Builder
	for i := range 1000 {
		b.WriteString("x" + strings.Repeat("y", i) + ": 1\n")
	}
	_, err = Parse("relay.yaml", []byte(b.String()), nil)
	all := All(err)
	if len(all) != maxErrors+1 || all[maxErrors].Error() != "relay.yaml: 980 more errors" {
		t.Errorf("%d errors, the last: %v", len(all), all[len(all)-1])
	}
}

// Whatever the input is, the answer is a configuration or an *Error, soon.
func TestHostileInput(t *testing.T) {
	for _, unit := range []string{
		"[", "{", "- ", "? ", "!a ", "&a ", "*a ", "{a: ", "[[],", "a: ", "<<: ", "|\n", "a\n", "'", "\"", "---\n", "...\n", "%a\n",
		"\x00", "\u2028", "- a\n", "a: 1\n", "#", ":", "${env:", "$", " ", "\t", "\r", ": - ",
	} {
		for _, n := range []int{1, 2, 3, 99, 1000} {
			text := strings.Repeat(unit, n)
			for _, file := range []string{text, "upstream: {node: {metadata: " + text, "instance: " + text, "upstream:\n  node:\n    metadata:\n      a: " + text} {
				if _, err := Parse("relay.yaml", []byte(file), nil); err != nil && len(All(err)) == 0 {
					t.Errorf("%q × %d: %T", unit, n, err)
				}
			}
			if _, err := Parse("", nil, []string{"upstream.node.metadata=" + text, "upstream.node.metadata." + text + "=" + text, text}); err == nil {
				t.Errorf("--set of %q × %d succeeded", unit, n)
			}
		}
	}
	for i := range len(fullFile) {
		_, _ = Parse("relay.yaml", []byte(fullFile[:i]), nil)
	}
}

func TestLengthIsBounded(t *testing.T) {
	_, err := Parse("relay.yaml", []byte(strings.Repeat("a: 1\n", 100_000)), nil)
	checkErr(t, err, lines(
		`relay.yaml:16667:4: the file is too long`,
		`16667 | a: 1`,
		`      |    ^`,
		`  hint: a configuration has at most 50000 names, values and punctuation marks`))
}

func TestNestingIsBounded(t *testing.T) {
	deep := "upstream: {node: {metadata: {a: " + strings.Repeat("[", 98) + strings.Repeat("]", 98) + "}}}"
	_, err := Parse("relay.yaml", []byte(deep), nil)
	if err == nil || !strings.HasPrefix(err.Error(), "relay.yaml:1:130: nested more than 100 levels deep") {
		t.Errorf("got %v", err)
	}
}
