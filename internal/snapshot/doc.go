// Package snapshot owns the last known good state on disk: the form of the file, and
// writing and reading it so that a crash at any moment leaves a file that loads
// whole, or is rejected whole (G9, RECON-19).
//
// It is a plain file of checksummed records, and not an embedded store, because a
// relay needs neither lookups nor partial updates on disk: the state is written
// as a whole and read as a whole, and a file that is written beside the old one and
// renamed over it has two states only. What is to be trusted fits on a page.
//
// What no client wants any more stays on disk for a while, in a second file of the same form
// (unwanted.go). The files are not one, because the first is rewritten whenever something changes, and
// what nobody wants may be many times as much as what is wanted. Nor is it kept in memory: it is
// copied from the old file to the new one, lane by lane.
//
// It never decides what is saved or served: fanout says what a Hub holds, and
// internal/relay when it is written. It starts no goroutine and reads no clock.
//
// # The file
//
// A first line with the format's version, then records, each
//
//	length   4 bytes, big-endian, of the payload
//	CRC-32C  4 bytes, big-endian, of the payload
//	payload  a kind, one byte, and its content
//
// in this order: one header (H), then for each group a group (G), its lanes (L), and
// after each lane its resources (R), and at the end the number of records (E). A group says how old
// its lanes are, and whether they are unwanted; one with parts of several ages is there
// several times. All but R are JSON, for people. An R is a byte of flags, the upstream's version and the time at
// which the resource's TTL ends, and then the resource as it stands in a response.
//
// With a key every payload is sealed with AES-256-GCM, its number and the first line
// being authenticated with it, so that records cannot be exchanged. Without a key
// types that are secret are not in the file at all.
//
// Limitations: one file for all groups; what is unwanted is written again as a whole, once a
// minute at most; a key cannot be changed without losing the file.
package snapshot
