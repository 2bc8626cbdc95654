package habits

import (
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"
)

// dataPath are the folders that the table calls "together".
var dataPath = []string{"cache", "fanout", "downstream", "upstream"}

// tree is what is measured.
type tree struct {
	files []*source
	disk  fs.FS
}

// in are the files of a place in the table.
func (tr tree) in(where string) (files []*source) {
	for _, s := range tr.files {
		if covers(where, s.dir()) {
			files = append(files, s)
		}
	}
	return files
}

func covers(where, dir string) bool {
	if where == "together" {
		return within(dir, dataPath...)
	}
	if folder, ok := strings.CutSuffix(where, "/..."); ok {
		return within(dir, folder)
	}
	return dir == where
}

// kind is a figure: how it is measured, and how closely it is watched.
type kind struct {
	measure func(tr tree, where string) measured
	// A limit is the figure, rounded to a multiple of step. It is to follow a figure that is better by more than slack.
	step, slack int
	fewer       bool   // fewer are worse
	each        bool   // each culprit has the limit to itself
	unit        string // after a number
	advice      string // to whom it has got worse
}

// limit is what follows from a figure.
func (k kind) limit(exact float64) int {
	round := math.Ceil
	if k.fewer {
		round = math.Floor
	}
	return k.step * int(round(exact/float64(k.step)))
}

const (
	shorten = "delete what nobody needs, or find the simpler model"
	decide  = "decide once and keep the answer"
)

// kinds are what the table may hold. Lines, and what is counted in 1,000 of them, move a little with every change.
// Were these limits exact, each commit would have to touch the table, and nobody would read it any more.
var kinds = map[string]kind{
	"lines":       {measure: ofCode(lines), step: 50, slack: 100, unit: "lines without tests", advice: shorten},
	"lines+tests": {measure: ofAll(lines), step: 50, slack: 100, unit: "lines with tests", advice: shorten},
	"operators":   {measure: ofCode(perThousand(joins)), step: 1, slack: 3, unit: "&& and || in 1,000 lines of code", advice: decide},
	"negations":   {measure: ofCode(perThousand(negates)), step: 1, slack: 3, unit: "! in 1,000 lines of code", advice: "say what is, not what is not"},
	"operands":    {measure: ofCode(operands), step: 1, each: true, unit: "operands in one condition", advice: "give a part of it a name, as a predicate that does not act"},
	"fields":      {measure: ofCode(fields), step: 1, each: true, unit: "fields in one struct", advice: "give those that belong together a type of their own"},
	"transcripts": {measure: ofFiles("testdata/*/*.txt"), step: 50, slack: 100, fewer: true, unit: "transcripts", advice: "bring back those whose rules still hold"},
	"mutants":     {measure: ofFiles("testdata/*.txt"), step: 1, unit: "mutants", advice: "keep those that differ most"},
	"leniencies":  {measure: ofLeniencies, step: 1, unit: "leniencies", advice: "judge the case, or leave it out of the games"},
}

// ofPackage are the figures of which each package of the data path has a row.
var ofPackage = []string{"lines", "operators", "negations", "operands", "fields"}

func ofAll(of func([]*source) measured) func(tree, string) measured {
	return func(tr tree, where string) measured {
		files := tr.in(where)
		m := of(files)
		m.none = len(files) == 0
		return m
	}
}

// ofCode leaves out tests.
func ofCode(of func([]*source) measured) func(tree, string) measured {
	return ofAll(func(files []*source) measured { return of(slices.DeleteFunc(files, (*source).isTest)) })
}

func ofFiles(pattern string) func(tree, string) measured {
	return func(tr tree, where string) measured {
		names, err := fs.Glob(tr.disk, where+"/"+pattern)
		return measured{exact: float64(len(names)), none: err != nil || len(names) == 0}
	}
}

func ofLeniencies(tr tree, where string) measured {
	text, err := fs.ReadFile(tr.disk, where)
	n := leniencies(string(text))
	return measured{exact: float64(n), none: err != nil || n == 0}
}

// lenient is the heading of the leniencies.
const lenient = "### Where the judge is lenient"

// leniencies are the rows of the table under their heading, without those that only group them.
func leniencies(markdown string) (n int) {
	here, begun := false, false
	for line := range strings.Lines(markdown) {
		switch {
		case strings.HasPrefix(line, "#"):
			here, begun = strings.TrimSpace(line) == lenient, false
		case strings.HasPrefix(line, "|---"):
			begun = here
		case begun && strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "| **"):
			n++
		}
	}
	return n
}

func TestLeniencies(t *testing.T) {
	const row = "| a | UP-1 | `a.go` |\n"
	for text, want := range map[string]int{
		lenient + "\n\nWords.\n\n| Leniency | Rule | Where |\n|---|---|---|\n| **Group** | | |\n" + row + row + "| **Group** | | |\n" + row + "\n## Next\n\n| A |\n|---|\n" + row: 3,
		"## Before\n\n| A |\n|---|\n" + row: 0,
		lenient + "\n\nNone.\n":             0,
	} {
		if got := leniencies(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
