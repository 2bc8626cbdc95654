// Package downstream is the relay's server side: every xDS method in both variants, Delta and
// SotW, served from a group's Hub.
//
// It is the edge around package session, which has the protocol of one stream. It owns the
// streams of clients, their connections, the clock and the goroutines. A stream (stream.go) has
// one goroutine, the one that receives. Senders that all streams share send (senders.go); a stream
// that might wait for its client gets a goroutine of its own meanwhile. So receiving never waits
// for sending.
//
// Clients that poll over REST are served by an HTTP server of its own (rest.go). What stays between two
// polls is a poller, with the session of the last one (pollers.go).
//
// Calls of other services go through (passthrough.go), with a goroutine for each direction (passed.go).
//
// It never decides what exists (the Hub does, by upstream's answers) or what a client is sent
// (the Session does), decodes no resource but to write it as JSON (REST-3), and never lets one client's slowness or bad
// request affect another client (UP-11).
//
// Limitations: the request of each unary call is decoded, and its response encoded, separately.
package downstream
