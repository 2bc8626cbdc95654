// Package session is the protocol of one client's stream, Delta or SotW: what a client is
// told, in which order, and what follows from what it says.
//
// It is pure: requests and the time go into a Session, responses and the next deadline
// come out. It knows no gRPC, reads no clock, starts no goroutine and takes no context, and
// imports nothing of the edge around it, which is package downstream. What it knows of
// resources it reads from fanout, under the locks that fanout has. deltaState and sotwState
// are the parts of a Session, one for each type; flush.go decides which of them speaks next.
//
// What a client may hold is one record, holdings: of each resource a version, or nothing. A
// client is sent the resources that exist and that it does not hold in that version, and told
// of those that it holds and that have gone; what is in doubt is neither. Beside that stand
// debts, the reasons to look, and those to tell something though it does not differ: it was
// asked for, an error is over, a TTL was renewed, a cluster warms. Sending changes holdings by
// what was said, a NACK changes none, and unsubscribing erases. A full-state SotW client is
// sent the whole set when there is something to tell, and nothing that it holds is in doubt
// or unknown; another SotW client what is new to it.
//
// It never decides what exists (that is the Hub's knowledge of upstream's answers),
// never decodes a resource, and never lets one client's NACK reach another (NACK-3).
//
// Limitations: SotW responses are never split. A full-state SotW set with bodies that are
// not kept (VALID-5) is sent without TTLs; what expires in it still leaves it.
package session
