package xdstest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
)

func TestTranscripts(t *testing.T) { RunDir(t, "testdata/self", Live(startForwarder)) }

// TestUpdateRestoresWhatWasHeard takes the "<" lines out of every transcript and lets -update put them back.
func TestUpdateRestoresWhatWasHeard(t *testing.T) {
	files, _ := filepath.Glob("testdata/self/*.txt")
	heard := regexp.MustCompile(`(?m)^[a-z0-9]+ +< .*\n`)
	*update = true
	defer func() { *update = false }()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), " ...\n") {
			continue // an open end cannot be restored
		}
		work := filepath.Join(t.TempDir(), filepath.Base(file))
		if err := os.WriteFile(work, heard.ReplaceAll(text, nil), 0o644); err != nil {
			t.Fatal(err)
		}
		Run(t, work, Live(startForwarder))
		if got, _ := os.ReadFile(work); string(got) != string(text) {
			t.Errorf("%s: -update wrote\n%s\ninstead of\n%s", file, got, text)
		}
	}
}

func TestUpdateKeepsCommentsAndWhatIsRight(t *testing.T) {
	tr := parse(t, `# A claim.
# spec: UP-1

# before
c1  > sub CDS a
# about up
up  < open ...
up  < sub CDS wrong
# about c1

up  > resp CDS nonce=1 a@1
# the end
`)
	got := tr.Rewrite([][]Event{
		{{Actor: "up", Text: "open node=relay"}},
		{{Actor: "c1", Text: "end"}, {Actor: "up", Text: "sub CDS a"}},
		{{Actor: "aux", Text: "closed"}},
	})
	want := `# A claim.
# spec: UP-1

# before
up  < open node=relay
c1  > sub CDS a
# about up
up < sub CDS a
c1 < end
# about c1

up  > resp CDS nonce=1 a@1
aux < closed
# the end
`
	if squeeze(got) != squeeze(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	again := parse(t, got)
	if third := again.Rewrite([][]Event{
		{{Actor: "up", Text: "open node=relay"}},
		{{Actor: "up", Text: "sub CDS a"}, {Actor: "c1", Text: "end"}},
		{{Actor: "aux", Text: "closed"}},
	}); third != got {
		t.Errorf("a file that is right was changed:\n%s", third)
	}
}

// squeeze ignores the width of the actors' column.
func squeeze(s string) string { return regexp.MustCompile(` +`).ReplaceAllString(s, " ") }

func TestPlayComplains(t *testing.T) {
	const header = "# A claim.\n# spec: UP-1\n"
	for _, c := range []struct{ name, text, want string }{
		{"of a wrong word", "c1 > sub CDS a\nup < open node=c1\nup < sub CDS b\n", `t.txt:3: after c1 > sub CDS a
  up (line 4)
    want open node=c1
         sub CDS b
    got  open node=c1
         sub CDS a
`},
		{"of silence", "c1 > open delta\nc1 < end\n", "t.txt:3: after c1 > open delta\n  c1 (line 4)\n    want end\n    got  (silence)\n"},
		{"of a word too many", "c1 > sub CDS a\n", "  up\n    want (silence)\n    got  open node=c1\n         sub CDS a\n"},
		{"of a start", "up < closed\nc1 > open delta\n", "t.txt:1: at the start\n  up (line 3)\n"},
		{"of a stream that is not there", "up > end\n", "t.txt:3: after up > end\n  up has no open stream"},
		{"of a second open", "c1 > open delta\nc1 > open sotw\n", "t.txt:4: after c1 > open sotw\n  c1 has a stream open"},
		{"of a closed stream", "c1 > open delta\nc1 > close\nup < closed\nc1 > sub CDS a\n", "c1 has no open stream"},
		{"of the other variant", "c1 > open sotw\nc1 > sub CDS a\n", "sub is for the other variant"},
		{"of an ack of nothing", "c1 > ack CDS\n", "there is no response #last of CDS"},
		{"of a method that is not there", "c1 > open sotw VHDS\n", "there is no sotw method for VHDS"},
		{"of a broken relay", "# config: broken=true\n", "t.txt: start: told to be broken"},
		{"of a wrong version", "c1 > sub CDS a\nup < open ...\nup < sub CDS a\nup > resp CDS nonce=1 a@wrong=1\n", "(RECON-1)"},
		{"of a repeated nonce", "c1 > sub CDS a\nup < open ...\nup < sub CDS a\nup > resp CDS nonce=1 a@1\nc1 < resp CDS +a@1\nup > resp CDS nonce=1 a@2\n", "(DOWN-DELTA-3)"},
		{"of a resource that comes twice", "c1 > sub CDS a\nup < open ...\nup < sub CDS a\nup > resp CDS nonce=1 a@1 -a\n", "(DOWN-DELTA-12)"},
		{"of an empty version_info", "c1 > open sotw\nc1 > req CDS\nup < open ...\nup < req CDS\nup > resp CDS nonce=1 a@1\n", "(DOWN-SOTW-11)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := parse(t, header+c.text)
			var complaint string
			synctest.Test(t, func(t *testing.T) { _, complaint = play(tr, Live(startForwarder), true) })
			if !strings.Contains(complaint, c.want) {
				t.Errorf("got\n%s\nwant\n%s", complaint, c.want)
			}
		})
	}
}

func parse(t *testing.T, text string) *Transcript {
	t.Helper()
	tr, err := Parse("t.txt", text)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}
