// Package xdstest owns the notation of this project's tests: the transcript, its parser and runner, a fake control plane and
// fake clients over real gRPC, and the live player, which puts a relay between them in a testing/synctest bubble.
// testdata/README.md is the legend of the notation.
//
// It never decides what a relay should do: it says what a file says, writes down what it hears, and compares. It imports no
// other package of the module, so that every one of them can import it from its tests; Fingerprint is therefore a hook.
//
// The tests of this package play every transcript twice: over real gRPC, and against the pure parts alone, with no gRPC,
// goroutine or clock (package play).
//
// # Limitations
//
// No REST, no file sources, no more than two control planes, no dynamic parameter constraints beyond the
// names of resource locators, no metadata on a resource, and no client that stops reading.
package xdstest

// StateDir is the word for a directory that outlives a relay, as a config value.
const StateDir = "STATE"
