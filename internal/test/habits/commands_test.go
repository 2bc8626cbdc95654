package habits

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// commandsFile says of each command that a document shows which test runs it, or why none does.
const commandsFile = "internal/test/habits/testdata/commands.txt"

// program are those whose commands count. What else stands in a fenced block is output, a picture or a file.
var program = regexp.MustCompile(`^(\./)?(apt|cosign|crane|curl|dnf|docker|dpkg|editor|envoy|git|go|grpcdebug|grpcurl|helm|kill|kubectl|make|sed|sha256sum|spire-server|systemctl|tar|useradd|xds-relay) `)

// shown calls found for each command in a fenced block of a document.
func shown(markdown string, found func(n int, command string)) {
	inside, fenced, console, n := false, false, false, 0
	for line := range strings.Lines(markdown) {
		n++
		line = strings.TrimSpace(line)
		if language, ok := strings.CutPrefix(line, "```"); ok {
			inside = !inside
			fenced, console = inside && (language == "" || language == "sh" || language == "console"), language == "console"
			continue
		}
		command, prompted := strings.CutPrefix(line, "$ ")
		if fenced && prompted == console && program.MatchString(command+" ") {
			found(n, command)
		}
	}
}

// ruling is a line of the file: the beginning of commands, and what runs them.
type ruling struct {
	line            int
	begins, verdict string
	used            bool
}

func rulings(text string) (all []*ruling) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		begins, verdict, _ := strings.Cut(line, "  ")
		all = append(all, &ruling{line: n, begins: begins, verdict: strings.TrimSpace(verdict)})
	}
	return all
}

// unaccounted complains of commands that nothing is said of, and of what is said of none. documents are texts by path; tests
// says whether there is a test of a name.
func unaccounted(documents map[string]string, said string, tests func(name string) bool) (complaints []string) {
	all := rulings(said)
	for name, text := range documents {
		shown(text, func(n int, command string) {
			var longest *ruling
			for _, r := range all {
				if strings.HasPrefix(command, r.begins) && (longest == nil || len(r.begins) > len(longest.begins)) {
					longest = r
				}
			}
			if longest == nil {
				complaints = append(complaints, fmt.Sprintf("%s:%d: nothing is known to run %q: let a test do so and name it in %s, or say there why none can", name, n, command, commandsFile))
				return
			}
			longest.used = true
		})
	}
	for _, r := range all {
		why, excused := strings.CutPrefix(r.verdict, "not here: ")
		switch {
		case !r.used:
			complaints = append(complaints, fmt.Sprintf("%s:%d: no document shows %q: remove the line", commandsFile, r.line, r.begins))
		case excused && why == "" || !excused && !tests(r.verdict):
			complaints = append(complaints, fmt.Sprintf("%s:%d: there is no test %q", commandsFile, r.line, r.verdict))
		}
	}
	return complaints
}

// TestCommandsAreRun: each command that a document shows is run by a test, or it is said why none runs it.
func TestCommandsAreRun(t *testing.T) {
	documents, tests := map[string]string{}, ""
	for _, name := range committed(t) {
		text, err := readText(name)
		switch {
		case err != nil || strings.Contains(name, "testdata/"): // deleted but not yet staged, or a test's own
		case filepath.Ext(name) == ".md":
			documents[name] = text
		case strings.HasSuffix(name, "_test.go"):
			tests += text
		}
	}
	said, err := readText(commandsFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, complaint := range unaccounted(documents, said, func(name string) bool { return name != "" && strings.Contains(tests, "\nfunc "+name+"(t *testing.T") }) {
		t.Error(complaint)
	}
}

func TestCommandsAreRunCanFail(t *testing.T) {
	const doc = "```console\n$ xds-relay ps\nxds-relay is fine\n```\n```\nmake x # y\n  go on\n```\n```go\nmake y\n```\nmake z\n"
	for _, tt := range []struct {
		said string
		want int
	}{
		{"xds-relay ps  TestA\nmake  not here: it takes an hour\ngo  TestA\n", 0},
		{"xds-relay  TestA\nmake x  not here: it takes an hour\ngo on  TestA\n", 0},
		{"xds-relay  TestA\ngo on  TestA\n", 1},
		{"xds-relay  TestB\nmake  TestA\ngo on  TestA\n", 1},
		{"xds-relay  TestA\nmake  not here: \ngo on  TestA\n", 1},
		{"xds-relay  TestA\nmake  TestA\ngo on  TestA\nmake z  TestA\n", 1},
	} {
		if got := unaccounted(map[string]string{"a.md": doc}, tt.said, func(name string) bool { return name == "TestA" }); len(got) != tt.want {
			t.Errorf("%q: %q", tt.said, got)
		}
	}
}
