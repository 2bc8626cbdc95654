// Package upstream is the relay's client side: it keeps the group's ADS streams to
// the control plane, Delta or SotW, and fills the group's Hub from them. What is said on
// them is decided by session.Core (package session).
//
// It owns the edge around that. Client has two goroutines per stream, one that receives and
// one that writes, so that receiving never waits for sending. Conn is what the groups of one
// entry share: which of its connections takes a stream (connections.go), whether anybody is
// there (health.go; checkup.go judges), when an answer ends the others' back-off
// (comeback.go), and what an error means, with what to do about it (hint.go, ending.go).
//
// It never waits for a downstream client (UP-11).
//
// Limitations: ADS only; files are not built yet.
package upstream
