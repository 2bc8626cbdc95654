// Package envoygateway plays the relay between Envoy Gateway and real Envoys:
//
//	make e2e-envoy-gateway
//
// Envoy Gateway is built from the module proxy, once, into the user's cache
// directory, and runs standalone: it reads Gateways and HTTPRoutes from a file, and
// starts Envoys on its own host. These are no real ones here. What it starts is a
// script that keeps the bootstrap it was given and sleeps, and the test starts an
// Envoy with that bootstrap, its xDS server replaced by the relay, so that the Envoy
// outlives Envoy Gateway as one in another pod does. The relay is the real program with
// deploy/examples/envoy-gateway/relay.yaml as it stands; what differs from host to host
// comes from the environment.
//
// It is a module of its own, so that it is built and run only if asked for: building
// Envoy Gateway takes minutes and gigabytes. It holds only tests.
//
// Envoy Gateway listens on ports that cannot be chosen, on all addresses. On Linux all
// takes place in a network of its own, of which nobody else sees anything; elsewhere,
// and where the system does not allow that, those ports must be free.
//
// Limitations: nothing here runs in Kubernetes, so what relay.yaml says of pods is not
// tried.
package envoygateway
