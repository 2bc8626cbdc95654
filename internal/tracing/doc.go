// Package tracing follows each update of the control plane to the ACKs of the clients
// whom it concerns, and exports some of what it has seen as OpenTelemetry traces. The
// edges tell it what happens (upstream.Tracer, downstream.Tracer); what it keeps of an
// update travels with the update, as a cache.Trace.
//
// An update is kept until all whom it concerns have given their verdict, or for
// Options.Window at most. Only then it is decided whether it is exported, so that every
// update that a client has rejected and every slow one can be, whatever the ratio. An
// update that is not exported costs no span.
//
// It never blocks whoever calls it, holds no lock while it exports, and never shows a
// resource's content, a header or a token. Names of resources appear only where a client
// has rejected them, and those of Secrets never. What it keeps is bounded: Limits.Updates
// updates, and of each Limits.Slowest clients, Limits.Nacks rejections and the responses
// that wait for their verdict.
//
// Limitations: what timers bring about, such as names that become missing or removals that
// were held back and are let go, is not traced. Of a response in parts the last one
// counts. A client that merges more than 32 updates is not listed in those beyond.
package tracing
