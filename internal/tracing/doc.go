// Package tracing follows each update of the control plane to the ACKs of the clients
// that it concerns, and exports some of these as OpenTelemetry traces. The edges tell
// it what happens (upstream.Tracer, downstream.Tracer); what it keeps of an update
// travels with the update, as a cache.Trace.
//
// An update is kept until all clients that it concerns have given their verdict, or for
// Options.Window at most. Only then the Tracer decides whether to export it, so that it
// can export every update that a client has rejected and every slow one, whatever the
// ratio. An update that is not exported costs no span.
//
// It never blocks whoever calls it, holds no lock while it exports, and never shows a
// resource's content, a header or a token. Names of resources appear only where a client
// has rejected them, and those of Secrets never. What it keeps is bounded: Limits.Updates
// updates, and of each Limits.Slowest clients, Limits.Nacks rejections and the responses
// that wait for their verdict.
//
// Limitations: changes that come from timers, such as names that become missing or
// removals that the guard releases, are not traced. Of a response in parts the last one
// counts. A client that merges more than 32 updates is not listed in those beyond.
package tracing
