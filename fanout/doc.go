// Package fanout decides who is interested in what: it joins the resources of one group of clients
// (package cache) to the clients' subscriptions, and turns the union of those subscriptions into
// what is wanted from upstream.
//
// It owns the Hub of a group, with one index per resource type. An index has two Tables, because
// the resources of the wildcard subscription and of the subscriptions by name are kept apart
// (WILD-16). It knows who subscribes to which name, and which names linger after their last client
// has left. Subscriber and Wanted are mailboxes: changes are marked in them and their owner is
// woken. Nothing is queued, so a slow client costs no more than the set of names that it has not
// been sent yet (H-12).
//
// Resources whose TTL ends are removed here, on time handed in, whether or not upstream can be
// reached (TTL-2).
//
// Lock law: session → index → mailbox, each at most once, and no other lock is taken under a
// mailbox's. Under any lock there is no encoding, no send that can block and no call into gRPC.
// Wake-ups run after all locks are released.
//
// The package starts no goroutine, reads no clock (time is an argument) and imports no gRPC.
// Limitation: dynamic parameters are not served (NAME-18). Spellings of a name other than the canonical one (NAME-8),
// and globs of SotW clients (NAME-11), never get here.
package fanout
