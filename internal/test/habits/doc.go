// Package habits holds the repository to its own habits: it contains only tests,
// which read the module's source and fail when a law of the layout is broken.
// A failure names the file, the line, and what to do about it.
//
// It owns the laws that a compiler cannot see and a reviewer forgets: which
// package may import which (imports_test.go), where goroutines and clocks may be
// (passive_test.go), what each package owes its reader and its tests
// (packages_test.go), what a file may hold (files_test.go), that the links of
// documents, and the Go files that they name, lead somewhere (links_test.go), that each rule of the protocol which
// is cited anywhere exists (rules_test.go), and that what the data path and its tests cost a reader gets no worse
// (figures_test.go; kinds_test.go has what is measured, measure_test.go how). Each check is a function from parsed
// source to complaints, and is itself tested against small sources written into
// the test.
//
// Limitations: the checks read syntax, not types. A local variable that hides
// the name of an imported package can mislead them, and a goroutine started
// inside a dependency is invisible to them. Nested modules and testdata are not
// read, except by the checks for links, for cited rules and for paths of somebody's
// machine, which read files that git would commit, and to count transcripts and mutants.
package habits
