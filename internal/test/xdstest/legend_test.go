package xdstest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var legendBlock = regexp.MustCompile("(?ms)^```transcript(-lines)?\n(.*?)^```")

// TestLegend reads the examples of testdata/README.md: whole transcripts, of which those that
// are not open begin a transcript that is played, and single lines, which show every verb of every actor.
func TestLegend(t *testing.T) {
	text, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, block := range legendBlock.FindAllStringSubmatch(string(text), -1) {
		if block[1] == "" {
			transcript, err := Parse("README.md", block[2])
			if err != nil {
				t.Error(err)
			} else if len(transcript.Open) == 0 {
				isOneOf(t, block[2])
			}
			continue
		}
		for line := range strings.Lines(block[2]) {
			actor, said, _ := strings.Cut(strings.TrimSpace(line), " > ")
			c, err := ParseCommand(actor, said)
			if err != nil {
				t.Errorf("%s: %v", strings.TrimSpace(line), err)
			}
			shown[c.Verb] = true
		}
	}
	for _, verbs := range []map[string]grammar{upstreamVerbs, clientVerbs} {
		for verb := range verbs {
			if !shown[verb] {
				t.Errorf("testdata/README.md does not show %s", verb)
			}
		}
	}
}

// isOneOf looks for an example among the transcripts, which are played.
func isOneOf(t *testing.T, example string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(text), example) {
			return
		}
	}
	t.Errorf("no transcript begins with the example:\n%s", example)
}
