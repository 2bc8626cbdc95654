package habits

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sentenceEnd is a full stop that is followed by space or by nothing.
var sentenceEnd = regexp.MustCompile(`[.!?][")'\]]*(\s|$)`)

// abbreviations end in a full stop and end no sentence.
var abbreviations = strings.NewReplacer("e.g.", "eg", "i.e.", "ie", "etc.", "etc", "cf.", "cf", "vs.", "vs")

func sentences(text string) int {
	return len(sentenceEnd.FindAllString(abbreviations.Replace(text), -1))
}

// packageComments asks each package for a comment of two sentences at least.
func packageComments(files []*source) (complaints []string) {
	dirs, in := byDir(files)
	for _, dir := range dirs {
		// In a package that has code, a test file's comment is not where one looks.
		speakers := slices.DeleteFunc(slices.Clone(in[dir]), (*source).isTest)
		if len(speakers) == 0 {
			speakers = in[dir]
		}
		longest, at := 0, speakers[0]
		for _, s := range speakers {
			if n := sentences(s.file.Doc.Text()); n > longest {
				longest, at = n, s
			}
		}
		if longest < 2 {
			complaints = append(complaints, at.complain(at.file.Package,
				"the comment of package %s has %d sentences, needs two at least: say what it owns, what it never does, and its limitations", dir, longest))
		}
	}
	return complaints
}

func TestPackageComments(t *testing.T) { check(packageComments).holds(t) }

func TestPackageCommentsCanFail(t *testing.T) {
	check(packageComments).try(t, []sample{
		{"two sentences", map[string]string{"p/a.go": "// Package p owns a. It never does b.\npackage p\n", "p/b.go": "package p\n"}, nil},
		{"over several lines", map[string]string{"p/a.go": "// Package p owns a\n// thing.\n//\n// It never does b.\npackage p\n"}, nil},
		{"none", map[string]string{"p/a.go": "package p\n"}, []string{"p/a.go:1"}},
		{"one sentence", map[string]string{"p/a.go": "package p\n", "p/b.go": "// Package p owns a.\npackage p\n"}, []string{"p/b.go:2"}},
		{"an abbreviation is no sentence", map[string]string{"p/a.go": "// Package p owns things, e.g. a.\npackage p\n"}, []string{"p/a.go:2"}},
		{"a number is no sentence", map[string]string{"p/a.go": "// Package p implements version 1.2 of a.\npackage p\n"}, []string{"p/a.go:2"}},
		{"a comment apart from the clause", map[string]string{"p/a.go": "// Package p owns a. It never does b.\n\npackage p\n"}, []string{"p/a.go:3"}},
		{"a test's comment does not count", map[string]string{"p/a.go": "package p\n", "p/a_test.go": "// Package p owns a. It never does b.\npackage p\n"}, []string{"p/a.go:1"}},
		{"unless there are only tests", map[string]string{"p/a_test.go": "// Package p owns a. It never does b.\npackage p\n"}, nil},
		{"each package its own", map[string]string{"p/a.go": "// Package p owns a. It never does b.\npackage p\n", "p/q/a.go": "package q\n"}, []string{"p/q/a.go:1"}},
	})
}

// leaksAllowed lists the packages whose tests may leave goroutines behind, each
// with its reason.
var leaksAllowed = map[string]string{}

// leakChecks asks each package that has tests for goleak.VerifyTestMain.
func leakChecks(files []*source) (complaints []string) {
	dirs, in := byDir(files)
	for _, dir := range dirs {
		if _, ok := leaksAllowed[dir]; ok {
			continue
		}
		var tested *source
		verified := false
		for _, s := range in[dir] {
			if !s.isTest() {
				continue
			}
			for _, decl := range s.file.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				switch {
				case !ok || fn.Recv != nil:
				case fn.Name.Name == "TestMain":
					verified = verified || verifiesLeaks(s, fn)
				case tested == nil && isTestFunc(fn.Name.Name):
					tested = s
				}
			}
		}
		if tested != nil && !verified {
			complaints = append(complaints, tested.complain(tested.file.Package,
				"the tests of %s do not look for leaked goroutines: add func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }", dir))
		}
	}
	return complaints
}

func isTestFunc(name string) bool {
	return slices.ContainsFunc([]string{"Test", "Benchmark", "Fuzz", "Example"}, func(kind string) bool {
		return strings.HasPrefix(name, kind)
	})
}

func verifiesLeaks(s *source, fn *ast.FuncDecl) (verifies bool) {
	local := s.imported("go.uber.org/goleak")
	ast.Inspect(fn, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "VerifyTestMain" {
				x, ok := sel.X.(*ast.Ident)
				verifies = verifies || ok && local != "" && x.Name == local
			}
		}
		return true
	})
	return verifies
}

func TestLeakChecks(t *testing.T) {
	check(leakChecks).holds(t)
	_, in := byDir(repository(t))
	for dir, reason := range leaksAllowed {
		if reason == "" || len(in[dir]) == 0 {
			t.Errorf("leaksAllowed has %q with the reason %q: every exception names a package that exists and says why", dir, reason)
		}
	}
}

func TestLeakChecksCanFail(t *testing.T) {
	const (
		test = "package p\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {}\n"
		main = "package p_test\n\nimport (\n\t\"testing\"\n\n\t\"go.uber.org/goleak\"\n)\n\nfunc TestMain(m *testing.M) { goleak.VerifyTestMain(m) }\n"
		bare = "package p\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(m *testing.M) { os.Exit(m.Run()) }\n"
	)
	check(leakChecks).try(t, []sample{
		{"no tests", map[string]string{"p/a.go": "package p\n"}, nil},
		{"only helpers for tests", map[string]string{"p/a_test.go": "package p\n\nfunc help() {}\n"}, nil},
		{"checked, from the external test package", map[string]string{"p/a_test.go": test, "p/main_test.go": main}, nil},
		{"no TestMain", map[string]string{"p/a_test.go": test}, []string{"p/a_test.go:1"}},
		{"a TestMain that does not look", map[string]string{"p/a_test.go": test, "p/main_test.go": bare}, []string{"p/a_test.go:1"}},
		{"a TestMain of another package", map[string]string{"p/a_test.go": test, "q/main_test.go": main}, []string{"p/a_test.go:1"}},
		{"benchmarks count", map[string]string{"p/a_test.go": "package p\n\nimport \"testing\"\n\nfunc BenchmarkA(b *testing.B) {}\n"}, []string{"p/a_test.go:1"}},
	})
}
