// Package demo is what `xds-relay demo` shows: a control plane, the relay and a
// fleet of clients on loopback, and a view of what happens between them.
//
// It owns the three and the story that is played with them: resources change,
// clients drop off and come back, the control plane goes away and returns. The
// control plane is go-control-plane's server, the relay is put together as serve
// does it, and every client is a gRPC connection of its own. It never reaches
// into the relay: every figure is counted on a socket, in a client, or by the
// control plane's own callbacks.
//
// Limitations: everything runs in one process, so times leave out any network,
// and include the clients' own work. The clients decode what the demo needs and
// accept everything. The port of the control plane is free while it is gone; if
// another process takes it, the demo ends with an error.
package demo
