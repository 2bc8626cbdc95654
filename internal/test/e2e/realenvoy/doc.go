// Package realenvoy runs real Envoys for tests: it finds the binary, fetches it when
// asked to, starts a process of it with a bootstrap, reads what its admin interface
// tells, drives requests through its listeners, and ends it. It is for tests only, of
// this module and of those below internal/test/e2e, and so imports nothing but the standard
// library.
//
// It never ends a process but by the id of one it has started, and never writes outside
// the user's cache directory and temporary ones. Limitations: Fetch knows the
// binaries for Linux with glibc, x86-64 and arm64, elsewhere ENVOY_BIN has to name one; an Envoy
// has one worker thread, unless Options say otherwise.
package realenvoy
