// Package share divides a total, such as all connections that clients may have, between those who hold
// parts of it (VALID-8). A total may be used to its end by anybody. Only when it is full does it matter who
// has how much: a newcomer gets the room of the largest holder's newest entry, if that holder still has more
// than the newcomer would have.
//
// It owns no lock, clock or goroutine: whoever uses a Ledger guards it, and ends what was displaced after
// its lock is released. It does not know what the parts are, and remembers nobody who has nothing.
package share
