// Package xdsjson owns the JSON form of the SotW messages, which clients and control planes speak over REST
// (protocol.md §13): it reads requests and responses within bounds, and writes both.
//
// What is read is weighed before anything is made of it. A resource is turned into JSON once, for all who ask for it,
// with the descriptors that are embedded in the program. What it says of a mistake in a response quotes no value, which may be a
// secret; Harmless is for others who read JSON or text. It starts no goroutine and reads no clock.
//
// Limitations: what the descriptors do not know has no JSON form. A response with a message of an unknown type, also one
// that is nested in another, is an error; fields that are newer than the descriptors are left out.
package xdsjson
