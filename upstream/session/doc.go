// Package session is the protocol of a group's streams to its control planes. Core is pure: events and the
// time go in, requests and effects come out. It has no goroutine, clock or gRPC; package upstream is the edge
// around it.
//
// The package decides
//
//   - which of the listed control planes is asked, and in which variant: entry.go, failover.go, probe.go;
//   - which lane goes on which stream: plan.go;
//   - what each stream has subscribed and still has to send: stream.go; delta.go and sotw.go compose the
//     requests, and size.go limits their length;
//   - how a response is read: decode.go;
//   - when a wildcard's set is complete: settle.go;
//   - what silence means: timers.go, unanswered.go, silence.go;
//   - when to connect again: backoff.go;
//   - which types the control plane refuses: suspect.go;
//   - whether a stream is alive: alive.go.
//
// Core never tells the Hub that a resource is gone because the control plane is unreachable (MISS-7, RECON-9). It
// acknowledges a response without asking any client (UP-4, NACK-1).
//
// Which service a stream calls, the aggregated one or that of a type, is for package upstream to say.
//
// Limitations: the names and the wildcard of a type never share a SotW stream (TRANSLATE-11), and a SotW
// server goes on sending a wildcard that was given up until the stream ends. Each group learns for itself what a
// control plane can do, for example that it has no Delta.
package session
