// Package mutants owns seeded bugs, and the proof that the tests find each of them: a net
// that lets a known fish through is no net.
//
// A mutant is a file in testdata: what it breaks and which guarantee, the product's
// file, and the exact text that is replaced by another. The twin (internal/twin) is to find
// it, or the test that it names: of what the games do not see. Nothing of it is in the
// product: the compiler is handed the changed file in place of the real one
// (go test -overlay), and only by the test that asks for it (make mutants). Every run
// of the tests checks that the mutants still apply, so that they do not rot.
//
// It never changes a file of the working tree, and says nothing of how a test finds
// what it finds.
//
// Limitations: a mutant changes one file, and is only known to be caught by one test, or by
// the games that the twin plays by default.
package mutants
