// Package session is the protocol of one client's stream, Delta or SotW: which responses the
// client is sent, in which order, and what follows from its requests.
//
// It is pure: requests and the time go into a Session, responses and the next deadline come out.
// It knows no gRPC, reads no clock, starts no goroutine, takes no context, and imports nothing of
// the edge around it, which is package downstream. It reads resources from fanout, under fanout's
// locks. A Session has one deltaState or sotwState for each type; flush.go decides which of them
// sends next.
//
// What the client holds is one record, holdings: for each resource a version, or nothing. One resource is
// wanted of each name (fanout.View.Resource). A client is sent what is wanted and what it does not hold in that version,
// and the removal of what it holds and nobody wants, once that is certain. Beside the record stands
// toSend: the reasons to look for something to send, and the reasons to send something that does not
// differ (the client asked for it, an error is over, a TTL was renewed, a cluster warms). Sending a response
// changes the record by what the response says, a NACK changes nothing, and unsubscribing erases.
//
// Of a plain client the record is a position in the order of changes, or one for each name, so that thousands
// of clients share responses; of an exact one it is a table. A full-state SotW client is sent the whole set
// when something in it is due and nothing that the client holds is uncertain; another SotW client is sent what is
// new to it.
//
// A Session never decides what exists (the Hub does, by upstream's answers), never decodes a
// resource, and never lets one client's NACK reach another client (NACK-3).
//
// Limitations: SotW responses are never split. Of two spellings of one xdstp name on one stream, the one that
// was asked for last is answered (NAME-9).
package session
