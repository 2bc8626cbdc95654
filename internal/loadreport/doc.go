// Package loadreport owns the sums of load reports: what the clients of a group report of their load (LRS) is added up,
// and taken as one report (LRS-5).
//
// A Sum has one group's load, and a Client adds one call's reports to it. Counters add up until they are taken, each once.
// What is in progress is the sum of what each client has said last (LRS-7): a report says all of that, so that what it
// leaves out is at nothing. Clients choose the names of clusters, localities, endpoints, metrics and categories. So a Room
// bounds what the Sums of all groups keep, and one client what it may be the first to name; what does not fit is dropped,
// and the caller is told for which Reason.
//
// The package starts no goroutine, reads no clock, knows no gRPC and never locks: its caller does, in package relay.
// Limitations: fields that this release does not know are not summed, and the metadata of an endpoint is that of the
// client that named it first.
package loadreport
