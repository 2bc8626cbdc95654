// Package events tells operators what they act on: a bounded list of what has happened (Ring), a live trace of what
// clients and the relay say to each other (Watch), and a webhook that passes the list on.
//
// Whoever publishes never waits, whatever readers do: a reader that is slow loses the oldest, and is told how many.
// An event never has a body, nor the version of a resource, nor the value of a header.
//
// Limitations: events are in memory only, and a restart forgets them. A repeat of an event may be told up to
// [Again] late. What a client says in a NACK is told as it is, as in the log.
package events
