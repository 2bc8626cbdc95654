// Package mutants owns seeded bugs, and the proof that the tests find each of them.
//
// A mutant is a file in testdata: what it breaks and which guarantee, the product's file,
// and the exact text that is replaced by another. The twin (internal/test/twin) must find it or,
// where the games cannot see it, the test that the mutant names. The product contains none
// of them: the test (make mutants) hands the compiler the changed file in place of the real
// one (go test -overlay). Every run of the tests checks that the mutants still apply, so
// that they do not rot.
//
// It never changes a file of the working tree, and says nothing of how a test finds
// what it finds.
//
// Limitations: a mutant changes one file, and is only known to be caught by one test, or by
// the games that the twin plays by default.
package mutants
