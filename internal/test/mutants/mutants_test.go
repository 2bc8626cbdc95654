package mutants

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// enough is how many there are to be.
const enough = 40

// twin is the test of a mutant that names none.
var twin = check{"./internal/test/twin", "TestModel|TestSotW|TestSeeds"}

// mutant is one seeded bug.
type mutant struct {
	name  string
	claim string // what it breaks, and which guarantee or rule
	file  string // from the root of the module
	test  check  // that has to fail
	edits []edit
}

// check is a package and which of its tests: as in go test ./downstream -run TestSplit.
type check struct{ dir, run string }

// edit is a text and what stands in its place.
type edit struct{ old, new string }

// load reads all mutants.
func load(t *testing.T) []mutant {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []mutant
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		m.name = strings.TrimSuffix(filepath.Base(file), ".txt")
		all = append(all, m)
	}
	return all
}

// parse reads
//
//	# What it breaks. G3
//	file: fanout/answers.go
//	test: ./fanout -run TestMailbox
//	--- old
//	text
//	--- new
//	text
//
// with as many pairs of old and new as it takes. Without a line test: the twin is to
// catch it.
func parse(text string) (m mutant, err error) {
	head, rest, ok := strings.Cut(text, "--- old\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	if !ok || len(lines) < 2 || len(lines) > 3 || !strings.HasPrefix(lines[0], "# ") || !strings.HasPrefix(lines[1], "file: ") {
		return m, errors.New("a mutant begins with # what it breaks, file: the file, maybe test: the test, and --- old")
	}
	m.claim, m.file, m.test = lines[0][len("# "):], lines[1][len("file: "):], twin
	if len(lines) == 3 {
		test, is := strings.CutPrefix(lines[2], "test: ./")
		dir, run, names := strings.Cut(test, " -run ")
		if !is || !names {
			return m, fmt.Errorf("%q is not test: ./package -run Test", lines[2])
		}
		m.test = check{"./" + dir, run}
	}
	for pair := range strings.SplitSeq(rest, "--- old\n") {
		before, after, ok := strings.Cut(pair, "--- new\n")
		if !ok {
			return m, errors.New("after --- old and a text comes --- new")
		}
		m.edits = append(m.edits, edit{strings.TrimSuffix(before, "\n"), strings.TrimSuffix(after, "\n")})
	}
	return m, nil
}

// apply is the file with the bug in it.
func (m mutant) apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	s := string(text)
	for _, e := range m.edits {
		if n := strings.Count(s, e.old); n != 1 {
			return nil, fmt.Errorf("%s has the text to replace %d times, not once:\n%s", m.file, n, e.old)
		}
		s = strings.Replace(s, e.old, e.new, 1)
	}
	return []byte(s), nil
}

// exists reports whether the tests of a package have one of that name: who runs a test that is
// not there finds nothing.
func (c check) exists(root string) bool {
	files, _ := filepath.Glob(filepath.Join(root, c.dir, "*_test.go"))
	function, _, _ := strings.Cut(c.run, "/") // what follows is a subtest
	name := regexp.MustCompile(`(?m)^func (?:` + function + `)\w*\(t \*testing\.T\)`)
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && name.Match(text)
	})
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// TestMutantsApply: each is a change of the code as it is now, and says which
// guarantee or rule it breaks; its test exists.
func TestMutantsApply(t *testing.T) {
	all := load(t)
	if len(all) < enough {
		t.Errorf("there are %d mutants, want %d", len(all), enough)
	}
	guarantee := regexp.MustCompile(`\b(G([1-9]|1[0-2])|[A-Z]+(-[A-Z]+)*-[0-9]+)\b`)
	for _, m := range all {
		if _, err := m.apply(moduleRoot(t)); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if !m.test.exists(moduleRoot(t)) {
			t.Errorf("%s: %s has no test %s", m.name, m.test.dir, m.test.run)
		}
		if !guarantee.MatchString(m.claim) {
			t.Errorf("%s: %q names no guarantee or rule", m.name, m.claim)
		}
	}
}

// TestMutantsCompile: each is Go. One that is not stops make mutants, which not everybody who changes a
// name runs.
func TestMutantsCompile(t *testing.T) {
	root, all := moduleRoot(t), load(t)
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}
	for _, m := range all {
		args = append(args, "./"+filepath.Dir(m.file))
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	type pkg struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
	}
	exports, packages := make(map[string]string), make(map[string]pkg) // packages by directory
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p pkg
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath], packages[p.Dir] = p.Export, p
	}
	files := token.NewFileSet()
	imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, m := range all {
		text, err := m.apply(root)
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		p := packages[filepath.Dir(filepath.Join(root, m.file))]
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			var source any
			if name == filepath.Base(m.file) {
				source = text
			}
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), source, parser.SkipObjectResolution)
			if err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
			parsed = append(parsed, file)
		}
		config := types.Config{Importer: imports, Error: func(err error) { t.Errorf("%s: %v", m.name, err) }}
		_, _ = config.Check(p.ImportPath, files, parsed, nil)
	}
}

// TestMutantsAreCaught plays the twin, or the test that a mutant names, against each of them.
// It takes minutes, and runs only when it is asked for: MUTANTS=1, or a list of names.
// make mutants asks.
func TestMutantsAreCaught(t *testing.T) {
	wanted := os.Getenv("MUTANTS")
	if wanted == "" {
		t.Skip("set MUTANTS=1, or run make mutants")
	}
	root, caught, tried := moduleRoot(t), 0, 0
	for _, m := range load(t) {
		if wanted != "1" && !slices.Contains(strings.Split(wanted, ","), m.name) {
			continue
		}
		tried++
		begin := time.Now()
		ok, said := m.caught(t, root)
		if ok {
			caught++
		}
		t.Logf("%-7s %-40s %4.0fs  %s", map[bool]string{true: "caught", false: "ESCAPED"}[ok], m.name, time.Since(begin).Seconds(), said)
	}
	if t.Logf("%d of %d caught", caught, tried); caught < tried {
		t.Errorf("%d escaped", tried-caught)
	}
}

// caught runs the mutant's test on the changed code, and says what it said.
func (m mutant) caught(t *testing.T, root string) (caught bool, said string) {
	t.Helper()
	text, err := m.apply(root)
	if err != nil {
		t.Fatalf("%s: %v", m.name, err)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, m.file): changed}})
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{changed: text, overlay: replace} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-overlay", overlay, "-count=1", "-timeout=280s", "-run", m.test.run, m.test.dir)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "TWIN_KEEP=no") // a mutant's script is no seed
	if os.Getenv("TWIN_STEPS") == "" {
		cmd.Env = append(cmd.Env, "TWIN_STEPS=150000") // the rarest are met once in some ten thousand
	}
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "[setup failed]") {
		t.Fatalf("%s does not compile:\n%s", m.name, out)
	}
	verdict := regexp.MustCompile(`\b(G\d+|[A-Z]+(-[A-Z]+)*-\d+|panic)\b[^\n]*`)
	if m.test != twin { // its own words name no guarantee
		verdict = regexp.MustCompile(`\w+\.go:\d+: [^\n]*|panic: [^\n]*|\d+: want[^\n]*`)
	}
	return err != nil, strings.TrimSpace(verdict.FindString(string(out)))
}
