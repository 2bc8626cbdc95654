// Package fanout decides who is interested in what: it joins the resources of
// one group of clients (package cache) to the clients' subscriptions, and turns
// the union of those subscriptions into what is wanted from upstream.
//
// It owns the Hub of a group, with one index per resource type: two Tables (what
// the wildcard subscription brought and what the subscriptions by name brought
// are kept apart, WILD-16), who subscribes to which name, and the names that
// linger though nobody wants them just now. Subscriber and Wanted are mailboxes:
// changes are marked in them and their owner is woken; nothing is ever queued, so
// that a slow client costs the set of names it has not been told of yet (H-12). The
// one exception are bodies that must not be cached (VALID-5): the latest of each name
// waits with the Subscription until it is sent.
//
// Resources whose TTL ends are let go here, on time handed in, whether or not
// upstream can be reached (TTL-2).
//
// Lock law: session → index → mailbox, each at most once, and nothing is taken
// under a mailbox's lock. Under any lock there is no encoding, no send that can
// block and no call into gRPC. Wake-ups run after all locks are released.
//
// The package starts no goroutine, reads no clock (time is an argument) and
// imports no gRPC. Limitations: globs and dynamic parameters (NAME-8 to NAME-18)
// are names like any other here.
package fanout
