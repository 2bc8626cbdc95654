// Package demo is what `xds-relay demo` shows: a control plane, the relay and a
// fleet of clients on loopback, and a view of what happens between them.
//
// It owns the three and the story that is played with them: resources change,
// clients drop off and come back, the control plane goes away and returns. The
// control plane is a small Delta server, the relay is put together as serve
// does it, and every client is a gRPC connection of its own. It never reaches
// into the relay: every figure is counted on a socket, in a client, or in the
// control plane.
//
// The relay's binary has the demo in it, so that it needs no other file and no Go.
// Therefore it is made of what the relay links anyway: of gRPC and the messages of
// the discovery protocol, neither of go-control-plane's server nor of Envoy's
// generated resource types. A second binary would be missing where only the first
// is installed. The relay's own downstream side as the control plane would be a
// relay in front of a relay, which is not what people have.
//
// Limitations: everything runs in one process, so times leave out any network,
// and include the clients' own work. The control plane speaks Delta only, and has
// only services that stay. The clients decode what the demo needs and
// accept everything. The port of the control plane is free while it is gone; if
// another process takes it, the demo ends with an error.
package demo
