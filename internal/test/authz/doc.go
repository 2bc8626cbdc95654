// Package authz holds the relay against rules of what clients may read.
//
// It plays random identities, rules, requests, updates and changes of the rules on the door and over mutual TLS, and
// an oracle of its own judges what is said. Alice tries to get the key of another client. A row for each method and
// route says what keeps it from giving that away.
//
// It is for tests only, and starts no processes: the log of a real one is looked at by package attack.
package authz
