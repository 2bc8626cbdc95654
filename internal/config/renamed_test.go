package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// withOldName has a section know an old name of a key, for a test.
func withOldName[Section any](t *testing.T, old, now string) {
	t.Helper()
	section := reflect.TypeFor[Section]()
	renamed[section] = map[string]string{old: now}
	t.Cleanup(func() { delete(renamed, section) })
}

// TestOldNames: an old name means what the new one means, in the file, in --set and in the items of lists,
// and a note asks for the new one, at its place.
func TestOldNames(t *testing.T) {
	withOldName[Timers](t, "quiet_time", "settle")
	withOldName[TypeOverride](t, "whole", "full_state")
	c, err := Parse("relay.yaml", []byte("timers:\n  quiet_time: 7ms\ntypes:\n  - {type_url: CDS, whole: true}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Timers.Settle != 7*time.Millisecond || c.Types[0].FullState == nil || !*c.Types[0].FullState {
		t.Errorf("%v, %+v", c.Timers.Settle, c.Types)
	}
	got := ""
	for _, n := range c.Notes() {
		got += n.Error() + "\n"
	}
	want := lines(
		`relay.yaml:2:3: timers.settle: "quiet_time" is the old name of "settle", which the next minor version does not read`,
		`    2 |   quiet_time: 7ms`,
		`      |   ^`,
		`  hint: write settle, which means the same`,
		`relay.yaml:4:21: types[0].full_state: "whole" is the old name of "full_state", which the next minor version does not read`,
		`    4 |   - {type_url: CDS, whole: true}`,
		`      |                     ^`,
		`  hint: write full_state, which means the same`) + "\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	// --set goes before the file, whichever names are used; only what counts is noted.
	for _, tt := range []struct{ file, set, note string }{
		{"timers: {settle: 1s}", "timers.quiet_time=7ms", `--set timers.quiet_time=7ms: timers.settle: "quiet_time" is the old name`},
		{"timers: {quiet_time: 1s}", "timers.settle=7ms", ""},
		{"log: {level: info}", "timers={quiet_time: 7ms}", `--set timers={quiet_time: 7ms}: timers.settle: "quiet_time" is the old name`},
	} {
		c, err := Parse("relay.yaml", []byte(tt.file), []string{tt.set})
		if err != nil {
			t.Fatal(err)
		}
		notes := c.Notes()
		if c.Timers.Settle != 7*time.Millisecond || (len(notes) > 0) != (tt.note != "") {
			t.Fatalf("%s, --set %s: %v, %v", tt.file, tt.set, c.Timers.Settle, notes)
		}
		if tt.note != "" && !strings.HasPrefix(notes[0].Error(), tt.note) {
			t.Errorf("note %v, want %s", notes[0], tt.note)
		}
	}

	// One of two values would not apply.
	for _, file := range []string{"timers: {settle: 1s, quiet_time: 1s}", "timers: {quiet_time: 1s, settle: 1s}"} {
		if _, err := Parse("relay.yaml", []byte(file), nil); err == nil || !strings.Contains(err.Error(), "are one key") || !strings.Contains(err.Error(), "hint: keep settle") {
			t.Errorf("%s: %v", file, err)
		}
	}

	// Editors take an old name, and mark it.
	timers := (&schemaWriter{fieldDocs(t)}).section(reflect.ValueOf(Default().Timers))
	old, _ := timers["properties"].(object)["quiet_time"].(object)
	if old["deprecated"] != true || old["anyOf"] == nil {
		t.Errorf("the schema says of an old name: %v", old)
	}
}

// TestOldNamesLeadSomewhere: each entry of the table names a key that there is, and one that there is not.
func TestOldNamesLeadSomewhere(t *testing.T) {
	for section, names := range renamed {
		for old, now := range names {
			v := reflect.New(section).Elem()
			if _, ok := fieldByName(v, now); !ok {
				t.Errorf("%v has no key %q, which %q leads to", section, now, old)
			}
			if _, ok := fieldByName(v, old); ok {
				t.Errorf("%v has a key %q, which cannot be the old name of %q", section, old, now)
			}
		}
	}
}
