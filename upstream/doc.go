// Package upstream is the client side of the relay. It keeps each group's ADS streams to the
// control plane, Delta or SotW, and fills the group's Hub from them. Package session decides
// what is asked on the streams; this package has the goroutines, the clock and gRPC.
//
// A Client serves one group. It has two goroutines for each stream, one that receives and one
// that sends, so that receiving never waits for sending. A Conn is shared by all groups that
// use an entry. It decides which connection takes a stream (connections.go), checks the health of
// connections (health.go, checkup.go), tells groups to stop backing off when the entry answers
// one of them (comeback.go), and explains errors (ending.go, with package hint).
//
// The package never waits for a downstream client (UP-11).
//
// Calls of other services go through a Conn of their own, undecoded (passthrough.go).
//
// Limitations: of discovery ADS only; files are not built yet. They would need no seam in this package: a server
// in the process that reads them can be an entry whose Endpoint has a Dial of its own.
package upstream
