package habits

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// root is the module's directory, seen from this package.
const root = "../../.."

// module is the path that the import rules are written against. TestModulePath
// notices when go.mod says something else.
const module = "github.com/xds-relay/xds-relay"

// source is one parsed Go file.
type source struct {
	path string // from the module's root, with slashes
	text string
	fset *token.FileSet
	file *ast.File
}

func (s *source) dir() string  { return path.Dir(s.path) }
func (s *source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }
func (s *source) isGenerated() bool {
	return ast.IsGenerated(s.file)
}

// complain is a violation: where, what, and what to do.
func (s *source) complain(at token.Pos, format string, args ...any) string {
	return s.position(at) + ": " + fmt.Sprintf(format, args...)
}

func (s *source) position(at token.Pos) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(at).Line)
}

// imported returns the name by which the file knows the package importPath, or
// "" when it does not import it.
func (s *source) imported(importPath string) string {
	for _, spec := range s.file.Imports {
		if importedPath(spec) != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

func importedPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value // the parser has let it through; no rule will match it
	}
	return p
}

// uses calls found for each place where the file names one of the members of
// the package importPath, called or not: time.Now as a value is a clock, too.
func (s *source) uses(importPath string, members []string, found func(at token.Pos, name string)) {
	local := s.imported(importPath)
	if local == "" {
		return
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && slices.Contains(members, sel.Sel.Name) {
			found(sel.Pos(), path.Base(importPath)+"."+sel.Sel.Name)
		}
		return true
	})
}

// within says whether dir is one of dirs, or lies below one of them.
func within(dir string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool {
		return dir == d || strings.HasPrefix(dir, d+"/")
	})
}

// byDir groups files by directory; the directories are in order.
func byDir(files []*source) (dirs []string, in map[string][]*source) {
	in = make(map[string][]*source)
	for _, s := range files {
		in[s.dir()] = append(in[s.dir()], s)
	}
	return slices.Sorted(maps.Keys(in)), in
}

// repository parses the module: every Go file but those in testdata, in nested
// modules, and in directories that the go command ignores.
func repository(t *testing.T) []*source {
	t.Helper()
	var files []*source
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == root {
				return nil
			}
			if base := d.Name(); base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_' {
				return filepath.SkipDir
			}
			switch _, err := os.Stat(filepath.Join(name, "go.mod")); {
			case err == nil:
				return filepath.SkipDir
			case !errors.Is(err, fs.ErrNotExist):
				return err
			}
			return nil
		}
		if !d.Type().IsRegular() || filepath.Ext(name) != ".go" || d.Name()[0] == '.' || d.Name()[0] == '_' {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(rel), string(text))
		if err != nil {
			t.Errorf("%v: habits can only be checked in code that parses", err)
			return nil
		}
		files = append(files, s)
		return nil
	})
	if err != nil {
		t.Fatalf("habits: read the module's source: %v", err)
	}
	if len(files) == 0 {
		t.Fatalf("habits: no Go file under %s: the checks would pass without having looked at anything", root)
	}
	return files
}

func parse(name, text string) (*source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{path: name, text: text, fset: fset, file: file}, nil
}

// check looks at the files it is given and complains, in their order.
type check func([]*source) []string

// holds runs a check over the repository.
func (c check) holds(t *testing.T) {
	t.Helper()
	for _, complaint := range c(repository(t)) {
		t.Error(complaint)
	}
}

// sample is a check of a check: sources in memory, and where it complains.
type sample struct {
	name  string
	files map[string]string
	want  []string // "path:line" of each complaint
}

func (c check) try(t *testing.T, samples []sample) {
	t.Helper()
	for _, s := range samples {
		t.Run(s.name, func(t *testing.T) {
			var files []*source
			for _, name := range slices.Sorted(maps.Keys(s.files)) {
				parsed, err := parse(name, s.files[name])
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, parsed)
			}
			got := c(files)
			if !slices.Equal(places(got), s.want) {
				t.Errorf("complaints at %q, want %q; they are:\n%s", places(got), s.want, strings.Join(got, "\n"))
			}
		})
	}
}

// places keeps the "path:line" of each complaint.
func places(complaints []string) []string {
	var at []string
	for _, c := range complaints {
		p := strings.SplitN(c, ":", 3)
		at = append(at, p[0]+":"+p[1])
	}
	return at
}

func TestModulePath(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			if got := strings.TrimSpace(name); got != module {
				t.Errorf("go.mod names the module %s, the import rules are written for %s: change the constant in internal/test/habits and the rules in .golangci.yml", got, module)
			}
			return
		}
	}
	t.Error("go.mod has no module line")
}

// TestLawsHaveSubjects notices a package that was renamed, because a law about
// a package that does not exist never fails.
func TestLawsHaveSubjects(t *testing.T) {
	_, in := byDir(repository(t))
	for _, dir := range []string{"cache", "fanout", "upstream", "downstream"} {
		if len(in[dir]) == 0 {
			t.Errorf("%s/ has no Go files: if the package has moved, change its name in internal/test/habits and in .golangci.yml", dir)
		}
	}
}
