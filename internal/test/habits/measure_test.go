package habits

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strings"
	"testing"
)

// culprit is a place in the source, and how much of a figure it has.
type culprit struct {
	at   string // "path:line"
	what string // a file, a function or a struct
	n    int
}

// measured is a figure as the source has it.
type measured struct {
	exact float64
	most  []culprit // who has most of it, first
	none  bool      // there is nothing here to measure
}

// sum is a figure to which all culprits add up.
func sum(most []culprit) measured {
	total := 0
	for _, c := range most {
		total += c.n
	}
	return measured{exact: float64(total), most: sorted(most)}
}

// largest is a figure that the worst culprit makes alone.
func largest(most []culprit) measured {
	m := measured{most: sorted(most)}
	if len(m.most) > 0 {
		m.exact = float64(m.most[0].n)
	}
	return m
}

func sorted(most []culprit) []culprit {
	most = slices.DeleteFunc(most, func(c culprit) bool { return c.n == 0 })
	slices.SortStableFunc(most, func(a, b culprit) int { return cmp.Compare(b.n, a.n) })
	return most
}

// lines are physical ones, as wc -l counts them.
func lines(files []*source) measured {
	var most []culprit
	for _, s := range files {
		most = append(most, culprit{s.path + ":1", path.Base(s.path), strings.Count(s.text, "\n")})
	}
	return sum(most)
}

// perThousand counts nodes of the syntax in 1,000 lines of code. Blank lines and comments are no code.
func perThousand(counts func(ast.Node) bool) func([]*source) measured {
	return func(files []*source) measured {
		var most []culprit
		code := 0
		for _, s := range files {
			code += s.linesOfCode()
			for _, decl := range s.file.Decls {
				n := 0
				ast.Inspect(decl, func(node ast.Node) bool {
					if node != nil && counts(node) {
						n++
					}
					return true
				})
				most = append(most, culprit{s.position(decl.Pos()), declared(decl), n})
			}
		}
		m := sum(most)
		m.exact = 1000 * m.exact / float64(max(code, 1))
		return m
	}
}

// linesOfCode are those on which at least a part of a token stands.
func (s *source) linesOfCode() int {
	var tokens scanner.Scanner
	file := token.NewFileSet().AddFile(s.path, -1, len(s.text))
	tokens.Init(file, []byte(s.text), nil, 0) // without comments
	n, last := 0, 0
	for {
		pos, tok, text := tokens.Scan()
		switch {
		case tok == token.EOF:
			return n
		case tok == token.SEMICOLON && text == "\n":
			continue // nobody has written it
		}
		first := file.Line(pos)
		end := first + strings.Count(text, "\n") // a raw string has several
		n += end - max(first-1, last)
		last = end
	}
}

// declared is the name of a function, with its receiver, or what else is declared.
func declared(decl ast.Decl) string {
	fn, ok := decl.(*ast.FuncDecl)
	switch {
	case !ok:
		return "a declaration outside functions"
	case fn.Recv == nil:
		return fn.Name.Name
	}
	return strings.TrimPrefix(types.ExprString(fn.Recv.List[0].Type), "*") + "." + fn.Name.Name
}

// joins says whether a node is && or ||.
func joins(n ast.Node) bool {
	e, ok := n.(*ast.BinaryExpr)
	return ok && (e.Op == token.LAND || e.Op == token.LOR)
}

func negates(n ast.Node) bool {
	e, ok := n.(*ast.UnaryExpr)
	return ok && e.Op == token.NOT
}

// operands finds the condition that has most of them.
func operands(files []*source) measured {
	var most []culprit
	for _, s := range files {
		for _, decl := range s.file.Decls {
			conditions(decl, func(at token.Pos, n int) {
				most = append(most, culprit{s.position(at), declared(decl), n})
			})
		}
	}
	return largest(most)
}

// conditions calls found for each condition within a node: an expression with && or ||, or the
// list of a case, where a switch has no tag and a comma says "or". What the statement before an if's
// condition names is a part of the condition.
func conditions(node ast.Node, found func(at token.Pos, operands int)) {
	one := func(parts []ast.Expr) {
		if len(parts) > 1 {
			found(parts[0].Pos(), len(parts))
		}
		for _, part := range parts {
			conditions(part, found)
		}
	}
	tagless := map[*ast.CaseClause]bool{}
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			parts := inPlace(n.Init, operandsOf(n.Cond))
			if len(parts) == 1 {
				return true
			}
			one(parts)
			for _, inner := range []ast.Stmt{n.Init, n.Body, n.Else} {
				if inner != nil {
					conditions(inner, found)
				}
			}
			return false
		case *ast.SwitchStmt:
			for _, clause := range n.Body.List {
				tagless[clause.(*ast.CaseClause)] = n.Tag == nil
			}
		case *ast.CaseClause:
			if !tagless[n] {
				return true
			}
			var parts []ast.Expr
			for _, e := range n.List {
				parts = append(parts, operandsOf(e)...)
			}
			one(parts)
			for _, statement := range n.Body {
				conditions(statement, found)
			}
			return false
		case *ast.BinaryExpr:
			if joins(n) {
				one(operandsOf(n))
				return false
			}
		}
		return true
	})
}

// inPlace puts what a statement says of a name in the place of the name.
func inPlace(said ast.Stmt, parts []ast.Expr) (all []ast.Expr) {
	named := map[string]ast.Expr{}
	if a, ok := said.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
		for i, e := range a.Lhs {
			named[fmt.Sprint(e)] = a.Rhs[i]
		}
	}
	for _, part := range parts {
		if id, ok := part.(*ast.Ident); ok && named[id.Name] != nil {
			all = append(all, operandsOf(named[id.Name])...)
		} else {
			all = append(all, part)
		}
	}
	return all
}

// operandsOf are what && and || join in an expression. Parentheses and negations hide none.
func operandsOf(e ast.Expr) []ast.Expr {
	switch x := e.(type) {
	case *ast.ParenExpr:
		return operandsOf(x.X)
	case *ast.UnaryExpr:
		if negates(x) {
			return operandsOf(x.X)
		}
	case *ast.BinaryExpr:
		if joins(x) {
			return append(operandsOf(x.X), operandsOf(x.Y)...)
		}
	}
	return []ast.Expr{e}
}

// fields finds the struct that has most of them. An embedded one is one; "a, b int" are two.
func fields(files []*source) measured {
	var most []culprit
	for _, s := range files {
		for _, decl := range s.file.Decls {
			name := "a struct in " + declared(decl)
			ast.Inspect(decl, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					name = n.Name.Name
				case *ast.StructType:
					most = append(most, culprit{s.position(n.Pos()), name, n.Fields.NumFields()})
				}
				return true
			})
		}
	}
	return largest(most)
}

// TestMeasures: what counts, and what does not.
func TestMeasures(t *testing.T) {
	for _, m := range []struct {
		name string
		of   func([]*source) measured
		text string // after the package clause, which is one line of code
		want float64
	}{
		{"a line is a line", lines, "\n// a\nvar a int\n", 4},

		{"operators", perThousand(joins), "var a = b && c || d\n", 1000},
		{"negations are counted apart", perThousand(joins), "var a = !b\n", 0},
		{"other operators are none", perThousand(joins), "var a = b & c | d != e\n", 0},
		{"neither are comments and strings", perThousand(joins), "// a && b\nvar a = \"a || b\"\n", 0},
		{"comments and blank lines are no code", perThousand(joins), "\n// a\n\n/* a\nb */\nvar a = b && c // d\n", 500},
		{"a line with several tokens is one", perThousand(joins), "func f() { a(); b() }\nvar a = b &&\n\tc\n", 250},
		{"each line of a raw string is one", perThousand(joins), "var a = b && `c\n\nd` == `e`\n", 250},
		{"one !", perThousand(negates), "var a = !b && c != d\n", 500},

		{"no condition", operands, "func f() { if a { b() } }\n", 0},
		{"two operands", operands, "var a = b && c\n", 2},
		{"both operators", operands, "var a = b && c || d\n", 3},
		{"parentheses hide nothing", operands, "var a = b && (c || (d && e))\n", 4},
		{"negations hide nothing", operands, "var a = b && !(c || !d)\n", 3},
		{"a comparison is one", operands, "var a = b == c && d < e\n", 2},
		{"an argument is a condition of its own", operands, "var a = b && f(c || d || e)\n", 3},
		{"so is what a function literal has", operands, "var a = b && func() bool { return c || d || e }()\n", 3},
		{"the list of a case", operands, "func f() { switch { case a, b, c: } }\n", 3},
		{"its operators, too", operands, "func f() { switch { case a && !b, (c || d): } }\n", 4},
		{"each case by itself", operands, "func f() { switch { case a, b: case c: default: } }\n", 2},
		{"with a tag the list is a set", operands, "func f() { switch a { case b, c, d: } }\n", 0},
		{"a condition in such a list", operands, "func f() { switch a { case b && c: } }\n", 2},
		{"a switch over types", operands, "func f() { switch a.(type) { case b, c, d: } }\n", 0},
		{"the body of a case", operands, "func f() { switch { case a: if b || c || d { } } }\n", 3},
		{"a switch within a switch", operands, "func f() { switch { case a: switch { case b, c, d: } } }\n", 3},
		{"a switch with a tag within one without", operands, "func f() { switch { case a: switch x { case b, c, d: } } }\n", 0},

		{"the statement before a condition", operands, "func f() { if a := b && c; a || d { } }\n", 3},
		{"the same, negated", operands, "func f() { if a := b && c; !a || d { } }\n", 3},
		{"a call before a condition", operands, "func f() { if a, err := g(b && c); a || err { } }\n", 2},
		{"the branches of an if", operands, "func f() { if a && b { } else { if b && c && d { } } }\n", 3},

		{"no struct", fields, "type a int\n", 0},
		{"fields", fields, "type a struct {\n\tb int\n\tc, d int\n}\n", 3},
		{"an embedded struct is one", fields, "type a struct {\n\tb\n\t*c\n}\n", 2},
		{"a struct without a name", fields, "func f() { var x struct{ a, b int } }\n", 2},
		{"a struct within a struct", fields, "type a struct {\n\tb struct{ c, d, e int }\n}\n", 3},
	} {
		t.Run(m.name, func(t *testing.T) {
			s, err := parse("p/a.go", "package p\n"+m.text)
			if err != nil {
				t.Fatal(err)
			}
			if got := m.of([]*source{s}).exact; got != m.want {
				t.Errorf("%v, want %v", got, m.want)
			}
		})
	}
}

// TestCulprits: the worst comes first, with its name and its place.
func TestCulprits(t *testing.T) {
	const text = `package p

type small struct{ a int }

type large struct {
	a, b int
}

func f() bool { return a && b }

func (l *large[K]) g() bool {
	return a && b &&
		c
}

var h = a || b || c || d
`
	s, err := parse("p/a.go", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct {
		name string
		of   func([]*source) measured
		want []culprit
	}{
		{"lines", lines, []culprit{{"p/a.go:1", "a.go", 16}}},
		{"operators", perThousand(joins), []culprit{{"p/a.go:16", "a declaration outside functions", 3}, {"p/a.go:11", "large[K].g", 2}, {"p/a.go:9", "f", 1}}},
		{"operands", operands, []culprit{{"p/a.go:16", "a declaration outside functions", 4}, {"p/a.go:12", "large[K].g", 3}, {"p/a.go:9", "f", 2}}},
		{"fields", fields, []culprit{{"p/a.go:5", "large", 2}, {"p/a.go:3", "small", 1}}},
	} {
		t.Run(m.name, func(t *testing.T) {
			if got := m.of([]*source{s}).most; !slices.Equal(got, m.want) {
				t.Errorf("%v, want %v", got, m.want)
			}
		})
	}
}
