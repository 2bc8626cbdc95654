// Package consul plays the relay between a real Consul and real Envoys, over
// loopback: make e2e-consul.
//
// It is a module of its own, so that the product's go.mod knows neither Consul nor
// what these tests need. Consul is built once, from the module proxy, into the user's
// cache directory, and Envoy is the one that package realenvoy finds; without Envoy
// the tests skip, and say how to get it. It owns nothing that runs in a relay: apart
// from this comment it holds only tests.
//
// The relay runs from deploy/examples/consul/relay.yaml as it stands; addresses and
// paths come through the environment variables that the example names. Envoys start
// from what `consul connect envoy -bootstrap` prints.
//
// Limitations: one Consul server, which is the agent of all services, too; no
// gateways, no transparent proxies, no enterprise partitions. Times are those of the
// real clock, so tests wait for events with a deadline. What Consul does on the wire
// is pinned in wire_test.go.
package consul
