// Package downstream is the relay's server side: every xDS method in both
// variants, Delta and SotW, served from a group's Hub.
//
// It is the edge around package session, which has the protocol of one stream: it owns
// the streams of clients, their connections, the clock and the goroutines. A stream
// (stream.go) has one goroutine while it is silent, the one that receives, and borrows a
// second only while there is something to send, so that receiving never waits for sending.
//
// It never decides what exists (that is the Hub's knowledge of upstream's answers),
// nor what a client is told (that is the Session's), never decodes a resource, and never
// lets one client's slowness or bad request reach another (UP-11).
//
// Limitations: unary calls are decoded and encoded once more each.
package downstream
