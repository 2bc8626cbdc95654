// Package upstream is the relay's client side: it keeps the group's ADS streams to
// the control plane, Delta or SotW, and fills the group's Hub from them.
//
// It owns what is said upstream: which of the listed control planes is asked, and in
// which variant (entry.go, probe.go), which lanes go on which stream (plan.go), what
// each stream has subscribed and still owes (stream.go; delta.go and sotw.go compose
// its requests, size.go says how much goes into one), what a response is worth
// (decode.go), when to try again (backoff.go), and which types the control plane
// refuses (suspect.go). All of that is Core, which is pure: events and the time go in,
// requests and effects come out, and it has no goroutine, clock or gRPC. Client is the
// edge around it: two goroutines per stream, one that receives and one that writes, so
// that receiving never waits for sending.
//
// Conn is what the groups of one entry share: which of its connections takes a stream
// (connections.go), whether anybody is there (alive.go, asked by health.go), and when an
// answer ends the others' back-off (comeback.go) are pure, too.
//
// It never waits for a downstream client (UP-11), never asks one before it ACKs
// (UP-4, NACK-1), and never tells the Hub that something is gone because the
// control plane is (MISS-7, RECON-9).
//
// Limitations: ADS only; files are not built yet. A SotW control plane is never asked
// for names and the wildcard of a type on one stream (TRANSLATE-11), and one that was
// told to give up a wildcard goes on sending it until the stream ends. Nor is it asked
// once more for bodies of a full-state type or a wildcard's set: those are kept though
// they are not to be cached (VALID-5). What is learned of a control plane, such as
// that it has no Delta, is learned by each group for itself.
package upstream
