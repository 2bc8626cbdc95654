// Package envoy plays the relay between a control plane and real Envoys, under load:
// boot, changes, outages, rotation, what is missing and what is asked for on demand. It
// holds the tests of R30, R31 and R33; each of their requests goes through an Envoy to a
// backend, and each failure counts.
//
// The control plane is the test's own server of the plain protocol, so that its world
// and its timing are the test's: it sends listeners and routes either when it sends
// clusters, as go-control-plane does, or only when these are acknowledged, as Consul does.
// It serves xdstp globs, which go-control-plane's cache does not; a collection of a size that
// no Envoy would have is played with clients of the test's own.
// What gets another name is also played with go-control-plane's own snapshots.
// Where the relay shows something that looks wrong, the same is done with an Envoy that
// is connected directly. It owns nothing that runs in a relay: apart from this comment it holds only tests.
//
// Limitations: without Envoy's binary the tests are skipped; `make e2e-envoy` gets it, and
// asks for the long forms, which E2E_LONG=1 does, too:
//
//	make e2e-envoy
//	make e2e-envoy RUN=RouteTurn
//
// ENVOY_LOG=debug shows what was said, and what the Envoys have logged, although a test
// passes. The short forms do the same with fewer turns. Envoy is the version that
// internal/test/e2e/realenvoy names. Times are those of the real clock.
package envoy
