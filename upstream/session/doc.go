// Package session is the protocol of a group's streams to its control planes. Core is pure: events and the
// time go in, requests and effects come out. It has no goroutine, clock or gRPC; package upstream is the edge
// around it.
//
// It owns which of the listed control planes is asked, and in which variant (entry.go, failover.go, probe.go),
// which lanes go on which stream (plan.go), what each stream has subscribed and still owes (stream.go; delta.go
// and sotw.go compose its requests, size.go says how much goes into one), what a response is worth (decode.go),
// when a wildcard's set is complete (settle.go), what silence means (timers.go, unanswered.go, silence.go), when to
// try again (backoff.go), which types the control plane refuses (suspect.go), and whether a stream is alive
// (alive.go).
//
// It never tells the Hub that something is gone because the control plane is (MISS-7, RECON-9), and never asks a
// client before it ACKs (UP-4, NACK-1).
//
// Limitations: ADS only. A SotW control plane is never asked for names and the wildcard of a type on one stream
// (TRANSLATE-11), and one that was told to give up a wildcard goes on sending it until the stream ends. Nor is it
// asked once more for bodies of a full-state type or a wildcard's set: those are kept though they are not to be
// cached (VALID-5). What is learned of a control plane, such as that it has no Delta, is learned by each group for
// itself.
package session
