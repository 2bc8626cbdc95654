// Package e2e plays the relay between real peers over real loopback sockets:
// go-control-plane's caches and server upstream; downstream grpc-go's own xDS
// client and server, a Delta client that behaves as Envoy does, a SotW client
// that behaves as gRPC does, and further relays.
//
// It owns nothing that runs in a relay: apart from this comment it holds only
// tests. Whatever a test starts, it also ends, and each peer checks every
// response it gets, so that a test fails on what is said too much as well as on
// what is not said.
//
// Limitations: envoy_test.go only does what Envoy's source and section 22 of the contract
// say it does; the tests with real Envoys are in the package envoy below this one, which
// `make e2e-envoy` runs, and the gate, where it can get Envoy's binary. Times are those of the real
// clock, so tests wait for events with a deadline and never sleep. The protocol's
// rules one by one are the business of internal/test/xdstest.
//
// The tests called TestJava have a java-control-plane upstream, or grpc-java's xDS client
// and server downstream, which Maven builds from the projects in java and java-xds; they
// need Java and Maven, and run only if asked for:
//
//	make e2e-java
//
// Four tests have a long form, which E2E_LONG=1 asks for:
//
//	E2E_LONG=1 go test ./internal/test/e2e -run 'TestOutages|TestClosedPort|TestChainOutage|TestMistakes' -v -timeout 20m
package e2e
