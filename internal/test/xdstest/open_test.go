package xdstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// TestOpen plays transcripts of rules that the forwarder does not keep, and of some that it does.
func TestOpen(t *testing.T) {
	const header = "# A claim.\n# spec: UP-1 UP-2\n# open: UP-2\n"
	const sound = "c1 > sub CDS a\nup < open node=c1\nup < sub CDS a\n"
	for _, c := range []struct{ name, text, want string }{
		{"wrong at the mark", "c1 > sub CDS a\nup < open node=c1\nup < sub CDS b !open\n", ""},
		{"wrong at the mark, and never played further", "c1 > sub CDS b\nup < open node=c1 !open\nup > end\nup < closed\n", ""},
		{"no mark", sound + "c1 > open delta\n", "one step has lines that end in !open; 0 have"},
		{"words where there should be none", "c1 > sub CDS a\nup < !open\n", ""},
		{"silence where there should be words", sound + "up > resp CDS nonce=1 a@1\nc1 < resp CDS +a@1\nc1 < end !open\n", ""},
		{"right at the mark", sound + "up > resp CDS nonce=1 a@1\nc1 < resp CDS +a@1 !open\n", "UP-2 is open no more"},
		{"right where there should be silence", sound + "c2 > open delta\nc2 < !open\n", "UP-2 is open no more"},
		{"right in the marked actor, wrong in another", sound + "up > resp CDS nonce=1 a@1\nc1 < resp CDS +a@1 !open\nc2 < end\n", `UP-2 is open at ["c1"], but what differs is ["c2"]`},
		{"wrong in more than the marked actor", sound + "up > resp CDS nonce=1 a@1\nc1 < resp CDS +a@2 !open\nc2 < end\n", `UP-2 is open at ["c1"], but what differs is ["c1" "c2"]`},
		{"wrong in all marked actors", sound + "up > resp CDS nonce=1 a@1\nc1 < resp CDS +a@2 !open\nc2 < end !open\n", ""},
		{"wrong before the mark", "c1 > sub CDS a\nup < open node=c1\nup < sub CDS b\nup > resp CDS nonce=1 a@1\nc1 < resp CDS +a@2 !open\n", "UP-2 is open, but it goes wrong elsewhere"},
		{"a fault of the player at the mark", sound + "up > resp CDS nonce=1 a@wrong=1\nc1 < resp CDS +a@1 !open\n", "(RECON-1)"},
		{"two steps marked", sound + "up > resp CDS nonce=1 a@1\nc1 < resp CDS +a@2 !open\nup > resp CDS nonce=2 a@1\nc1 < end !open\n", "one step has lines that end in !open; 2 have"},
	} {
		t.Run(c.name, func(t *testing.T) {
			complaint := ""
			tr, err := Parse("t.txt", header+c.text)
			if err != nil {
				complaint = err.Error()
			} else {
				synctest.Test(t, func(t *testing.T) { _, complaint = play(tr, Live(startForwarder), true) })
			}
			if (complaint == "") != (c.want == "") || !strings.Contains(complaint, c.want) {
				t.Errorf("got\n%s\nwant\n%s", complaint, c.want)
			}
		})
	}
}

func TestMarksBelongToAHeader(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"# A claim.\n# spec: UP-1\nc1 > sub CDS a\nup < closed !open\n", "a line is marked !open"},
		{"# A claim.\n# spec: UP-1\n# open:\nc1 < !open\n", "open is followed by the rules"},
		{"# A claim.\n# spec: UP-1\nc1 > sub CDS a !open\n", "t.txt:3: "},
		{"# A claim.\n# spec: UP-1\n# open: up1\nc1 < !open\n", "up1 is not the id of a rule"},
		{"# A claim.\n# spec: UP-1\n# open: UP-2\nc1 < !open\n", "UP-2 is open, and not among the rules"},
	} {
		if _, err := Parse("t.txt", c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
	tr := parse(t, "# A claim.\n# spec: UP-1\n# open: UP-1\nc1 > sub CDS a\nup < sub CDS a  !open\n")
	if line := tr.Steps[1].Heard[0]; line.Text != "sub CDS a" || !line.Open {
		t.Errorf("the marked line is read as %+v", line)
	}
	if rest, marked := cutMark("resp CDS +a!open"); marked {
		t.Errorf("a word that ends like the mark is read as one, after %q", rest)
	}
}

// TestUpdateLeavesOpenTranscriptsAlone: what they say is what the rule wants.
func TestUpdateLeavesOpenTranscriptsAlone(t *testing.T) {
	const text = "# A claim.\n# spec: UP-1\n# open: UP-1\nc1 > sub CDS a\nup < sub CDS b !open\n"
	file := filepath.Join(t.TempDir(), "a-claim.txt")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	*update = true
	defer func() { *update = false }()
	Run(t, file, Live(startForwarder))
	if got, _ := os.ReadFile(file); string(got) != text {
		t.Errorf("-update wrote\n%s", got)
	}
	rules, err := Rules(filepath.Dir(file))
	if files := rules["UP-1"]; err != nil || len(files) != 1 || files[0] != "a-claim.txt (open)" {
		t.Errorf("UP-1 is shown by %q (%v)", files, err)
	}
}
