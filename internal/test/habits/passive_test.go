package habits

import (
	"go/ast"
	"go/token"
	"testing"
)

// goroutineOwners are the only places that start goroutines: whoever starts one
// also ends it, and there one looks for it.
var goroutineOwners = []string{
	"upstream", "downstream", "internal/admin", "internal/origin", "internal/relay", "internal/tracing", "cmd",
	"internal/certs",                                                                                      // each SPIFFE agent is listened to while Run runs
	"internal/logging",                                                                                    // the end of a storm is written when nothing comes after it
	"bench", "internal/demo", "internal/health", "internal/preflight", "internal/test", "deploy/examples", // beside the data path
}

// starts calls found for each place where the file starts a goroutine: the
// statement, the Go method of a WaitGroup or an errgroup, and AfterFunc.
func (s *source) starts(found func(at token.Pos, what string)) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found(n.Pos(), "a go statement")
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" && len(n.Args) == 1 {
				found(n.Pos(), "a call of a method named Go")
			}
		}
		return true
	})
	for _, pkg := range []string{"time", "context"} {
		s.uses(pkg, []string{"AfterFunc"}, found)
	}
}

func goroutinesAtTheEdges(files []*source) (complaints []string) {
	for _, s := range files {
		if s.isTest() || within(s.dir(), goroutineOwners...) && !isPassive(s) {
			continue
		}
		s.starts(func(at token.Pos, what string) {
			complaints = append(complaints, s.complain(at, "%s outside the edges: return a value, and let upstream, downstream, internal/admin, internal/origin, internal/relay, internal/tracing or cmd start the goroutine", what))
		})
	}
	return complaints
}

func TestGoroutinesAtTheEdges(t *testing.T) { check(goroutinesAtTheEdges).holds(t) }

func TestGoroutinesAtTheEdgesCanFail(t *testing.T) {
	const (
		stmt  = "package p\n\nfunc f() {\n\tgo f()\n}\n"
		group = "package p\n\nimport \"sync\"\n\nvar wg sync.WaitGroup\n\nfunc f() { wg.Go(f) }\n"
		after = "package p\n\nimport \"time\"\n\nfunc f() { time.AfterFunc(1, f) }\n"
	)
	check(goroutinesAtTheEdges).try(t, []sample{
		{"the owners may", map[string]string{
			"upstream/a.go": stmt, "downstream/a.go": group, "internal/admin/a.go": after, "internal/relay/a.go": stmt,
			"cmd/xds-relay/a.go": stmt, "bench/a.go": stmt, "internal/test/xdstest/a.go": stmt,
		}, nil},
		{"tests may", map[string]string{"cache/a_test.go": stmt, "internal/config/a_test.go": group}, nil},
		{"cache may not", map[string]string{"cache/a.go": stmt}, []string{"cache/a.go:4"}},
		{"below fanout neither", map[string]string{"fanout/index/a.go": stmt}, []string{"fanout/index/a.go:4"}},
		{"config may not", map[string]string{"internal/config/a.go": stmt}, []string{"internal/config/a.go:4"}},
		{"the protocol of a stream may not", map[string]string{"downstream/session/a.go": stmt}, []string{"downstream/session/a.go:4"}},
		{"an edge's protocol logic may not", map[string]string{"upstream/session/backoff.go": stmt}, []string{"upstream/session/backoff.go:4"}},
		{"a WaitGroup starts one, too", map[string]string{"fanout/a.go": group}, []string{"fanout/a.go:7"}},
		{"so does AfterFunc", map[string]string{"fanout/a.go": after}, []string{"fanout/a.go:5"}},
		{"a goroutine within a function literal", map[string]string{"cache/a.go": "package p\n\nvar f = func() {\n\tfunc() { go f() }()\n}\n"}, []string{"cache/a.go:4"}},
	})
}

// clocks are the members of package time that read one or wait for one.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}

func noClockInPassiveCode(files []*source) (complaints []string) {
	for _, s := range files {
		if !isPassive(s) {
			continue
		}
		s.uses("time", clocks, func(at token.Pos, name string) {
			complaints = append(complaints, s.complain(at, "%s in passive code: take the time as an argument, and return the next deadline instead of waiting", name))
		})
	}
	return complaints
}

func TestNoClockInPassiveCode(t *testing.T) { check(noClockInPassiveCode).holds(t) }

func TestNoClockInPassiveCodeCanFail(t *testing.T) {
	const head = "package p\n\nimport \"time\"\n\n"
	check(noClockInPassiveCode).try(t, []sample{
		{"time as an argument", map[string]string{"cache/a.go": head + "func f(now time.Time) time.Time { return now.Add(time.Second) }\n"}, nil},
		{"a test may measure", map[string]string{"cache/a_test.go": head + "var t0 = time.Now()\n"}, nil},
		{"an edge may wait", map[string]string{"upstream/client.go": head + "func f() { <-time.After(1) }\n"}, nil},
		{"reading the clock", map[string]string{"cache/a.go": head + "var t0 = time.Now()\n"}, []string{"cache/a.go:5"}},
		{"the clock as a value", map[string]string{"cache/a.go": head + "var now = time.Now\n"}, []string{"cache/a.go:5"}},
		{"the clock under another name", map[string]string{"fanout/a.go": "package p\n\nimport clock \"time\"\n\nvar t0 = clock.Now()\n"}, []string{"fanout/a.go:5"}},
		{"the protocol of a stream", map[string]string{"downstream/session/a.go": head + "var t0 = time.Now()\n"}, []string{"downstream/session/a.go:5"}},
		{"an edge's protocol logic", map[string]string{"upstream/session/backoff.go": head + "var t0 = time.Now()\n"}, []string{"upstream/session/backoff.go:5"}},
		{"every way of waiting", map[string]string{"fanout/a.go": head +
			"func f() {\n\ttime.Sleep(1)\n\t_ = time.Since(t)\n\t_ = time.Until(t)\n\t<-time.After(1)\n\t<-time.Tick(1)\n\ttime.NewTimer(1)\n\ttime.NewTicker(1)\n\ttime.AfterFunc(1, f)\n}\n"},
			[]string{"fanout/a.go:6", "fanout/a.go:7", "fanout/a.go:8", "fanout/a.go:9", "fanout/a.go:10", "fanout/a.go:11", "fanout/a.go:12", "fanout/a.go:13"}},
	})
}
