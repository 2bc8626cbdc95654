// Package cache holds the latest resources of one group of clients, in the order in which they
// changed.
//
// It owns three nouns that the rest of the relay speaks in: Resource (one immutable version of one
// resource, with the bytes that go on the wire encoded once), Update (what one upstream response
// said) and Table (every known name of one type, its state, and the list of changes that lets a
// client catch up from any position).
//
// It never starts a goroutine, reads a clock, takes a lock or talks gRPC: a Table belongs to
// whoever holds the lock around it (package fanout). It never decodes a resource beyond the two
// fields ORDER-6 needs, and never judges one (VALID-1). Rule ids such as VALID-2 refer to
// docs/protocol.md.
//
// Limitations: resources with dynamic parameter constraints are not told apart by them.
package cache
