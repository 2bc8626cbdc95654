package habits

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

const (
	grpc    = "google.golang.org/grpc"
	xdstest = module + "/internal/test/xdstest"
	tests   = module + "/internal/test" // what is for tests
)

// direction says what one part of the tree may not import. Tests obey it like
// all other code, but they may import internal/test.
type direction struct {
	dirs   []string // whom the rule binds, subdirectories included
	deny   []string // import paths, with all below them
	except []string // import paths, with all below them, allowed all the same
	do     string
}

// directions are the arrows of the layout. depguard has the same rules in
// .golangci.yml, so that an editor shows them while the line is being written.
var directions = []direction{{
	dirs:   []string{"cache"},
	deny:   []string{module},
	except: []string{module + "/cache"},
	do:     "cache is the bottom layer: let the caller pass in what it needs",
}, {
	dirs:   []string{"fanout"},
	deny:   []string{module},
	except: []string{module + "/cache", module + "/fanout"},
	do:     "fanout imports only cache: let the caller pass in what it needs",
}, {
	dirs:   []string{"cache", "fanout"},
	deny:   []string{grpc},
	except: []string{grpc + "/codes"}, // plain numbers
	do:     "the passive middle knows no gRPC: translate in upstream or downstream",
}, {
	dirs: []string{"upstream"},
	deny: []string{module + "/downstream"},
	do:   "the two edges meet only in fanout: move what both need to cache or fanout",
}, {
	dirs: []string{"downstream"},
	deny: []string{module + "/upstream"},
	do:   "the two edges meet only in fanout: move what both need to cache or fanout",
}, {
	dirs:   []string{"downstream/session"},
	deny:   []string{module},
	except: []string{module + "/cache", module + "/fanout", module + "/downstream/session", module + "/internal/header", module + "/internal/hop", module + "/internal/test/scaling"},
	do:     "the protocol of a stream knows the middle only: let package downstream pass in what it needs",
}, {
	dirs: []string{"downstream/session"},
	deny: []string{grpc},
	do:   "the protocol of a stream knows no gRPC: return a value and let package downstream act on it",
}, {
	dirs:   []string{"upstream/session"},
	deny:   []string{module},
	except: []string{module + "/cache", module + "/fanout", module + "/upstream/session", module + "/internal/header", module + "/internal/hop", module + "/internal/test/scaling"},
	do:     "the protocol of the streams knows the middle only: let package upstream pass in what it needs",
}, {
	dirs: []string{"upstream/session"},
	deny: []string{grpc},
	do:   "the protocol of the streams knows no gRPC: take a value and let package upstream translate",
}, {
	dirs:   []string{"bench"},
	deny:   []string{module},
	except: []string{module + "/bench"},
	do:     "bench speaks to the relay over the wire only",
}}

func importDirections(files []*source) (complaints []string) {
	for _, s := range files {
		for _, spec := range s.file.Imports {
			imp := importedPath(spec)
			if do, ok := forbidden(s, imp); ok {
				complaints = append(complaints, s.complain(spec.Pos(), "%s must not import %s: %s", s.dir(), imp, do))
			}
		}
	}
	return complaints
}

func forbidden(s *source, imp string) (do string, ok bool) {
	if within(imp, tests) {
		if s.isTest() || within(s.dir(), "internal/test") {
			return "", false
		}
		return "only tests import what is for tests: move the code to a _test.go file, or what it needs out of there", true
	}
	for _, d := range directions {
		if within(s.dir(), d.dirs...) && within(imp, d.deny...) && !within(imp, d.except...) {
			return d.do, true
		}
	}
	return "", false
}

func TestImportDirections(t *testing.T) { check(importDirections).holds(t) }

func TestImportDirectionsCanFail(t *testing.T) {
	const m = module
	file := func(imports ...string) string {
		return "package p\n\nimport (\n\t\"" + strings.Join(imports, "\"\n\t\"") + "\"\n)\n"
	}
	check(importDirections).try(t, []sample{
		{"cache may use protobuf and codes", map[string]string{"cache/a.go": file("sync", "google.golang.org/protobuf/proto", grpc+"/codes", "google.golang.org/genproto/googleapis/rpc/status")}, nil},
		{"cache imports gRPC", map[string]string{"cache/a.go": file("sync", grpc)}, []string{"cache/a.go:5"}},
		{"cache imports a package of gRPC", map[string]string{"cache/a.go": file(grpc + "/mem")}, []string{"cache/a.go:4"}},
		{"a test of cache imports gRPC", map[string]string{"cache/a_test.go": file(grpc)}, []string{"cache/a_test.go:4"}},
		{"cache imports fanout", map[string]string{"cache/a.go": file(m + "/fanout")}, []string{"cache/a.go:4"}},
		{"cache imports the module's root", map[string]string{"cache/a.go": file(m)}, []string{"cache/a.go:4"}},
		{"below cache the same holds", map[string]string{"cache/lru/a.go": file(m+"/cache", m+"/internal/config")}, []string{"cache/lru/a.go:5"}},
		{"a package that only begins like cache", map[string]string{"cachectl/a.go": file(grpc)}, nil},
		{"fanout imports cache", map[string]string{"fanout/a.go": file(m + "/cache")}, nil},
		{"fanout imports upstream and gRPC", map[string]string{"fanout/a.go": file(m+"/cache", m+"/upstream", grpc+"/mem")}, []string{"fanout/a.go:5", "fanout/a.go:6"}},
		{"the edges import each other", map[string]string{"downstream/a.go": file(m + "/upstream"), "upstream/a.go": file(m + "/downstream")}, []string{"downstream/a.go:4", "upstream/a.go:4"}},
		{"the edges import the middle and gRPC", map[string]string{"downstream/a.go": file(m+"/fanout", m+"/cache", grpc)}, nil},
		{"the edge imports the protocol of a stream", map[string]string{"downstream/a.go": file(m+"/downstream/session", grpc)}, nil},
		{"the protocol of a stream imports the middle", map[string]string{"downstream/session/a.go": file(m+"/cache", m+"/fanout", "google.golang.org/genproto/googleapis/rpc/status")}, nil},
		{"the protocol of a stream imports its edge", map[string]string{"downstream/session/a.go": file(m+"/fanout", m+"/downstream")}, []string{"downstream/session/a.go:5"}},
		{"the protocol of a stream imports gRPC", map[string]string{"downstream/session/a.go": file(grpc+"/codes", grpc)}, []string{"downstream/session/a.go:4", "downstream/session/a.go:5"}},
		{"the wiring imports both edges", map[string]string{"cmd/xds-relay/main.go": file(m+"/upstream", m+"/downstream")}, nil},
		{"bench imports a package of the relay", map[string]string{"bench/a.go": file(m+"/bench/report", grpc, m+"/cache")}, []string{"bench/a.go:6"}},
		{"tests may import xdstest", map[string]string{"fanout/a_test.go": file(m + "/internal/test/xdstest")}, nil},
		{"xdstest may import itself", map[string]string{"internal/test/xdstest/twin/a.go": file(m + "/internal/test/xdstest")}, nil},
		{"tests may import peer", map[string]string{"internal/test/chaos/a_test.go": file(tests + "/peer")}, nil},
		{"code imports peer", map[string]string{"cmd/xds-relay/demo.go": file(tests + "/peer")}, []string{"cmd/xds-relay/demo.go:4"}},
		{"code imports xdstest", map[string]string{"cache/a.go": file(xdstest), "cmd/xds-relay/demo.go": file(xdstest)}, []string{"cache/a.go:4", "cmd/xds-relay/demo.go:4"}},
		{"an alias hides nothing", map[string]string{"cache/a.go": "package p\n\nimport g \"" + grpc + "\"\n"}, []string{"cache/a.go:3"}},
	})
}

// passiveDirs are the packages that are passive as a whole: event in, value out.
var passiveDirs = []string{"cache", "fanout", "downstream/session", "internal/loadreport"}

// passiveFiles are the files of other packages that are, too.
var passiveFiles = []string{
	"upstream/session/core.go", "upstream/session/plan.go", "upstream/session/suspect.go", "upstream/session/backoff.go",
	"upstream/session/delta.go", "upstream/session/decode.go", "upstream/session/settle.go", "upstream/session/config.go",
	"upstream/session/sotw.go", "upstream/session/stream.go", "upstream/session/slot.go", "upstream/session/effect.go", "upstream/session/timers.go",
	"upstream/session/alive.go", "upstream/checkup.go", "upstream/comeback.go", "upstream/session/condition.go", "upstream/connections.go", "upstream/session/echo.go", "upstream/session/entry.go", "upstream/session/failover.go", "upstream/session/outage.go", "upstream/session/probe.go", "upstream/session/reconfigure.go", "upstream/session/refresh.go", "upstream/session/unanswered.go",
	"internal/relay/key.go", "internal/relay/grouping.go", "internal/relay/node.go", "internal/relay/way.go",
}

// isPassive says whether a file's code lies in the passive part of the relay.
// Their tests may measure time and run goroutines.
func isPassive(s *source) bool {
	return !s.isTest() && (within(s.dir(), passiveDirs...) || slices.Contains(passiveFiles, s.path))
}

// passiveImports keeps gRPC and context out of the passive part.
func passiveImports(files []*source) (complaints []string) {
	for _, s := range files {
		if !isPassive(s) {
			continue
		}
		for _, spec := range s.file.Imports {
			switch imp := importedPath(spec); {
			case imp == "context":
				complaints = append(complaints, s.complain(spec.Pos(), "passive code takes no context: let the caller, who may wait, look at it"))
			case imp == "time" && dotted(spec):
				complaints = append(complaints, s.complain(spec.Pos(), "a dot import of time hides the clock: import it by its name"))
			case slices.Contains(passiveFiles, s.path) && within(imp, grpc) && !within(imp, grpc+"/codes"):
				complaints = append(complaints, s.complain(spec.Pos(), "protocol logic knows no gRPC: return a value and let the stream's loop act on it"))
			}
		}
	}
	return complaints
}

func dotted(spec *ast.ImportSpec) bool { return spec.Name != nil && spec.Name.Name == "." }

func TestPassiveImports(t *testing.T) { check(passiveImports).holds(t) }

func TestPassiveImportsCanFail(t *testing.T) {
	check(passiveImports).try(t, []sample{
		{"durations and arguments are fine", map[string]string{"cache/a.go": "package p\n\nimport \"time\"\n\nfunc f(now time.Time) {}\n"}, nil},
		{"context in cache", map[string]string{"cache/a.go": "package p\n\nimport \"context\"\n"}, []string{"cache/a.go:3"}},
		{"context under another name", map[string]string{"fanout/a.go": "package p\n\nimport c \"context\"\n"}, []string{"fanout/a.go:3"}},
		{"context in a test of cache", map[string]string{"cache/a_test.go": "package p\n\nimport \"context\"\n"}, nil},
		{"context in the protocol of a stream", map[string]string{"downstream/session/a.go": "package p\n\nimport \"context\"\n"}, []string{"downstream/session/a.go:3"}},
		{"context in an edge", map[string]string{"upstream/client.go": "package p\n\nimport \"context\"\n"}, nil},
		{"context in an edge's protocol logic", map[string]string{"upstream/session/delta.go": "package p\n\nimport \"context\"\n"}, []string{"upstream/session/delta.go:3"}},
		{"gRPC in an edge's protocol logic", map[string]string{"upstream/session/sotw.go": "package p\n\nimport \"" + grpc + "\"\n"}, []string{"upstream/session/sotw.go:3"}},
		{"codes in an edge's protocol logic", map[string]string{"upstream/session/sotw.go": "package p\n\nimport \"" + grpc + "/codes\"\n"}, nil},
		{"a clock behind a dot", map[string]string{"fanout/a.go": "package p\n\nimport . \"time\"\n"}, []string{"fanout/a.go:3"}},
	})
}
