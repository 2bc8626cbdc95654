// Package downstream is the relay's server side: every xDS method in both
// variants, Delta and SotW, served from a group's Hub.
//
// It owns the streams of clients. Session is the protocol of one stream and is
// pure: requests and the time go in, responses come out; deltaState and sotwState
// are its parts, one for each type. The edge around it (stream.go) has one
// goroutine for a silent stream, the one that receives, and borrows a second only
// while there is something to send, so that receiving never waits for sending.
//
// It never decides what exists (that is the Hub's knowledge of upstream's answers),
// never decodes a resource, and never lets one client's NACK, slowness or bad
// request reach another (NACK-3, UP-11).
//
// Limitations: SotW responses are never split, and unary calls are decoded and
// encoded once more each. A full-state SotW set with bodies that are not kept
// (VALID-5) is sent without TTLs; what expires in it still leaves it.
package downstream
