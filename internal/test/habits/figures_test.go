package habits

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	figuresFile = "internal/test/habits/testdata/figures.txt"
	updates     = "go test ./internal/test/habits -run Figures -update"
)

var update = flag.Bool("update", false, "write the limits in "+figuresFile+" as the figures are now")

// row is one figure of the table, or a line that is none.
type row struct {
	line          int
	text          string // if it is no figure
	where, figure string
	limit         int
	goal          string // a number, or -
}

type table []row

func parseTable(text string) (all table, err error) {
	for line := range strings.Lines(text) {
		r := row{line: len(all) + 1, text: strings.TrimSpace(line)}
		if r.text != "" && r.text[0] != '#' {
			if r, err = parseRow(r.line, r.text); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", figuresFile, len(all)+1, err)
			}
		}
		all = append(all, r)
	}
	return all, nil
}

func parseRow(line int, text string) (row, error) {
	words := strings.Fields(text)
	if len(words) != 4 {
		return row{}, fmt.Errorf("%q is not where, which figure, its limit, and the goal or -", text)
	}
	if kinds[words[1]].measure == nil {
		return row{}, fmt.Errorf("nobody measures %q", words[1])
	}
	limit, err := strconv.Atoi(words[2])
	if err != nil {
		return row{}, fmt.Errorf("the limit %q is no whole number", words[2])
	}
	return row{line: line, where: words[0], figure: words[1], limit: limit, goal: words[3]}, nil
}

func (r row) measure(tr tree) measured { return kinds[r.figure].measure(tr, r.where) }

// judge complains of a figure that is worse than its limit, or much better.
func (r row) judge(tr tree) []string {
	k, m := kinds[r.figure], r.measure(tr)
	spare := float64(r.limit) - m.exact
	if k.fewer {
		spare = -spare
	}
	at := fmt.Sprintf("%s:%d", figuresFile, r.line)
	switch {
	case m.none:
		return []string{fmt.Sprintf("%s: nothing is there to measure the %s of %s: if it has moved, correct the row", at, r.figure, r.where)}
	case spare > float64(k.slack):
		return []string{fmt.Sprintf("%s: %s has %s %s, better than %d: run %s, so that it stays so", at, r.where, number(m.exact), k.unit, r.limit, updates)}
	case spare >= 0:
		return nil
	case k.each:
		return r.judgeEach(m.most)
	}
	limit := "at most"
	if k.fewer {
		limit = "at least"
	}
	if len(m.most) > 0 {
		at = m.most[0].at
	}
	return []string{fmt.Sprintf("%s: %s has %s %s, %s %d: %s%s; or give the reason in the commit, and run %s",
		at, r.where, number(m.exact), k.unit, limit, r.limit, k.advice, mostIn(m.most), updates)}
}

func (r row) judgeEach(most []culprit) (complaints []string) {
	k := kinds[r.figure]
	for _, c := range most {
		if c.n > r.limit {
			complaints = append(complaints, fmt.Sprintf("%s: %s has %d %s, at most %d in %s: %s; or give the reason in the commit, and run %s",
				c.at, c.what, c.n, k.unit, r.limit, r.where, k.advice, updates))
		}
	}
	return complaints
}

// worst are those who have most.
func worst(most []culprit) []culprit { return most[:min(3, len(most))] }

func mostIn(most []culprit) string {
	var names []string
	for _, c := range worst(most) {
		names = append(names, fmt.Sprintf("%s (%s, %d)", c.what, c.at, c.n))
	}
	if names == nil {
		return ""
	}
	return "; most are in " + strings.Join(names, ", ")
}

func number(f float64) string {
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(f, 'f', 2, 64), "0"), ".")
}

func (t table) judge(tr tree) (complaints []string) {
	for _, r := range t {
		if r.figure != "" {
			complaints = append(complaints, r.judge(tr)...)
		}
	}
	return complaints
}

// lacks complains of packages of the data path that the table leaves out.
func (t table) lacks(tr tree) (complaints []string) {
	dirs, _ := byDir(tr.in("together"))
	for _, dir := range dirs {
		for _, figure := range ofPackage {
			if !slices.ContainsFunc(t, func(r row) bool { return r.where == dir && r.figure == figure }) {
				complaints = append(complaints, fmt.Sprintf("%s:1: the %s of %s are missing: add the row with the limit 0, and run %s", figuresFile, figure, dir, updates))
			}
		}
	}
	return complaints
}

// updated has the limits that follow from the figures as they are.
func (t table) updated(tr tree) table {
	t = slices.Clone(t)
	for i, r := range t {
		if r.figure != "" {
			t[i].limit = kinds[r.figure].limit(r.measure(tr).exact)
		}
	}
	return t
}

func (t table) String() string {
	var b strings.Builder
	for _, r := range t {
		if r.figure != "" {
			r.text = fmt.Sprintf("%-24s %-11s %6d %5s", r.where, r.figure, r.limit, r.goal)
		}
		fmt.Fprintln(&b, r.text)
	}
	return b.String()
}

// show prints the figures as they are beside their limits and goals, and who has most of each.
func (t table) show(tr tree) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-24s %-11s %8s %6s %5s\n", "where", "figure", "now", "limit", "goal")
	for _, r := range t {
		if r.figure != "" {
			fmt.Fprintf(&b, "%-24s %-11s %8s %6d %5s\n", r.where, r.figure, number(r.measure(tr).exact), r.limit, r.goal)
		}
	}
	for _, figure := range ofPackage {
		fmt.Fprintf(&b, "\nmost %s\n", figure)
		for _, c := range worst(kinds[figure].measure(tr, "together").most) {
			fmt.Fprintf(&b, "%6d  %s  %s\n", c.n, c.at, c.what)
		}
	}
	return b.String()
}

func TestFigures(t *testing.T) {
	text, err := readText(figuresFile)
	if err != nil {
		t.Fatal(err)
	}
	limits, err := parseTable(text)
	if err != nil {
		t.Fatal(err)
	}
	tr := tree{repository(t), os.DirFS(root)}
	if *update {
		limits = limits.updated(tr)
		if err := os.WriteFile(filepath.Join(root, figuresFile), []byte(limits.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if testing.Verbose() {
		t.Log("\n" + limits.show(tr))
	}
	for _, complaint := range slices.Concat(limits.lacks(tr), limits.judge(tr)) {
		t.Error(complaint)
	}
}

// limited is a check against a table, with these files on disk.
func limited(text string, onDisk ...string) check {
	disk := fstest.MapFS{}
	for _, name := range onDisk {
		disk[name] = &fstest.MapFile{}
	}
	return func(files []*source) []string {
		limits, err := parseTable(text)
		if err != nil {
			return []string{err.Error()}
		}
		return limits.judge(tree{files, disk})
	}
}

func TestFiguresCanFail(t *testing.T) {
	const here = figuresFile + ":1"
	long := func(n int) string { return "package p\n" + strings.Repeat("\n", n-1) }
	code := func(lines ...string) string { return "package p\n" + strings.Join(lines, "\n") + "\n" }

	t.Run("lines", func(t *testing.T) {
		limited("cache lines 150 -").try(t, []sample{
			{"at the limit", map[string]string{"cache/a.go": long(150)}, nil},
			{"one more, and the longest is named", map[string]string{"cache/a.go": long(50), "cache/b.go": long(101)}, []string{"cache/b.go:1"}},
			{"tests do not count", map[string]string{"cache/a.go": long(150), "cache/a_test.go": long(50)}, nil},
			{"other packages do not count", map[string]string{"cache/a.go": long(150), "cache/b/a.go": long(50), "fanout/a.go": long(50)}, nil},
			{"somewhat better", map[string]string{"cache/a.go": long(50)}, nil},
			{"much better", map[string]string{"cache/a.go": long(49)}, []string{here}},
			{"nothing is there", map[string]string{"cash/a.go": long(150)}, []string{here}},
		})
	})
	t.Run("lines of a folder", func(t *testing.T) {
		limited("cache/... lines 150 -").try(t, []sample{
			{"all below it", map[string]string{"cache/a.go": long(50), "cache/b/a.go": long(101)}, []string{"cache/b/a.go:1"}},
			{"not what only begins like it", map[string]string{"cache/a.go": long(150), "cached/a.go": long(50)}, nil},
		})
	})
	t.Run("lines together", func(t *testing.T) {
		limited("together lines 150 -").try(t, []sample{
			{"too many", map[string]string{"cache/a.go": long(60), "fanout/a.go": long(10), "upstream/session/a.go": long(70), "downstream/a.go": long(11)}, []string{"upstream/session/a.go:1"}},
			{"the rest does not count", map[string]string{"cache/a.go": long(150), "internal/relay/a.go": long(50)}, nil},
		})
	})
	t.Run("lines with tests", func(t *testing.T) {
		limited("twin lines+tests 150 -").try(t, []sample{
			{"too many", map[string]string{"twin/a.go": long(50), "twin/a_test.go": long(101)}, []string{"twin/a_test.go:1"}},
		})
	})
	t.Run("operators", func(t *testing.T) {
		limited("cache operators 250 -").try(t, []sample{
			{"at the limit", map[string]string{"cache/a.go": code("var a = b && c", "var d = 0", "var e = 0")}, nil},
			{"with less code", map[string]string{"cache/a.go": code("var d = 0", "var a = b && c")}, []string{"cache/a.go:3"}},
			{"with more of them", map[string]string{"cache/a.go": code("var a = b && c", "var d = 0"), "cache/b.go": code("func f() bool { return a || b || c }", "var e = 0")}, []string{"cache/b.go:2"}},
			{"tests do not count", map[string]string{"cache/a.go": code("var a = b && c", "var d = 0", "var e = 0"), "cache/a_test.go": code("var f = a && b")}, nil},
			{"much better", map[string]string{"cache/a.go": code("var a = b && c", "var d = 0", "var e = 0", "var f = 0")}, []string{here}},
		})
	})
	t.Run("negations", func(t *testing.T) {
		limited("cache negations 500 -").try(t, []sample{
			{"at the limit", map[string]string{"cache/a.go": code("var a = !b")}, nil},
			{"more of them", map[string]string{"cache/a.go": code("var a = !b == !c")}, []string{"cache/a.go:2"}},
		})
	})
	t.Run("operands", func(t *testing.T) {
		limited("cache operands 3 -").try(t, []sample{
			{"at the limit", map[string]string{"cache/a.go": code("var a = b && c || d")}, nil},
			{"too many, twice", map[string]string{"cache/a.go": code("var a = b && c || d && e", "", "var f = b &&", "c && d &&", "e")}, []string{"cache/a.go:2", "cache/a.go:4"}},
			{"in a case", map[string]string{"cache/a.go": code("func f() {", "switch {", "case a, b && c, d:", "}", "}")}, []string{"cache/a.go:4"}},
			{"in a test", map[string]string{"cache/a.go": code("var a = b && c || d"), "cache/a_test.go": code("var a = b && c && d && e")}, nil},
			{"better", map[string]string{"cache/a.go": code("var a = b && c")}, []string{here}},
		})
	})
	t.Run("fields", func(t *testing.T) {
		limited("cache fields 3 -").try(t, []sample{
			{"at the limit", map[string]string{"cache/a.go": code("type a struct { b, c int; d }")}, nil},
			{"too many", map[string]string{"cache/a.go": code("type a struct { b, c int; d }", "type e struct { f, g, h, i int }")}, []string{"cache/a.go:3"}},
			{"better", map[string]string{"cache/a.go": code("type a struct { b int }")}, []string{here}},
		})
	})
	t.Run("files", func(t *testing.T) {
		for name, c := range map[string]struct {
			limits check
			want   []string
		}{
			"mutants at the limit":     {limited("m mutants 2 -", "m/testdata/a.txt", "m/testdata/b.txt", "m/testdata/b.md", "m/testdata/c/d.txt", "n/testdata/e.txt"), nil},
			"a mutant too many":        {limited("m mutants 1 -", "m/testdata/a.txt", "m/testdata/b.txt"), []string{here}},
			"a mutant less":            {limited("m mutants 3 -", "m/testdata/a.txt", "m/testdata/b.txt"), []string{here}},
			"no mutants":               {limited("m mutants 0 -"), []string{here}},
			"transcripts at the limit": {limited("x transcripts 2 -", "x/testdata/up/a.txt", "x/testdata/node/b.txt", "x/testdata/README.md"), nil},
			"more transcripts":         {limited("x transcripts 1 -", "x/testdata/up/a.txt", "x/testdata/up/b.txt"), nil},
			"a transcript less":        {limited("x transcripts 3 -", "x/testdata/up/a.txt", "x/testdata/up/b.txt"), []string{here}},
			"no document":              {limited("docs/testing.md leniencies 0 -"), []string{here}},
			"a document without them":  {limited("docs/testing.md leniencies 0 -", "docs/testing.md"), []string{here}},
		} {
			if got := places(c.limits(nil)); !slices.Equal(got, c.want) {
				t.Errorf("%s: complaints at %q, want %q", name, got, c.want)
			}
		}
	})
	t.Run("rows", func(t *testing.T) {
		for text, want := range map[string][]string{
			"# a\n\ncache lines 1\n": {figuresFile + ":3"},
			"cache words 1 -\n":      {here},
			"cache lines one -\n":    {here},
		} {
			if got := places(limited(text)(nil)); !slices.Equal(got, want) {
				t.Errorf("%q: complaints at %q, want %q", text, got, want)
			}
		}
	})
}

func TestFiguresOfEachPackageCanFail(t *testing.T) {
	limits, err := parseTable("cache lines 0 -\ncache operators 0 -\ncache negations 0 -\ncache operands 0 -\ncache fields 0 -\nupstream/... lines 0 -\n")
	if err != nil {
		t.Fatal(err)
	}
	const here = figuresFile + ":1"
	check(func(files []*source) []string { return limits.lacks(tree{files: files}) }).try(t, []sample{
		{"all are there", map[string]string{"cache/a.go": "package p\n", "internal/relay/a.go": "package p\n"}, nil},
		{"a new package", map[string]string{"cache/lru/a.go": "package p\n"}, []string{here, here, here, here, here}},
		{"its folder is not enough", map[string]string{"upstream/a.go": "package p\n"}, []string{here, here, here, here, here}},
	})
}

// TestFiguresAreWritten: -update changes limits, rounded for the worse, and nothing else.
func TestFiguresAreWritten(t *testing.T) {
	limits, err := parseTable("# a\n\ncache lines 0 1600\n# b\ncache operands 9 -\ntwin transcripts 0 -\n")
	if err != nil {
		t.Fatal(err)
	}
	s, err := parse("cache/a.go", "package p\nvar a = b && c\n")
	if err != nil {
		t.Fatal(err)
	}
	disk := fstest.MapFS{}
	for i := range 149 {
		disk[fmt.Sprintf("twin/testdata/a/%d.txt", i)] = &fstest.MapFile{}
	}
	const want = `# a

cache                    lines           50  1600
# b
cache                    operands         2     -
twin                     transcripts    100     -
`
	if got := limits.updated(tree{[]*source{s}, disk}).String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
