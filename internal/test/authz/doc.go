// Package authz holds the relay against rules of what clients may read: random identities, rules, requests,
// updates and changes of the rules, judged by an oracle of its own, on the door and over mutual TLS; what one client
// tries to get another one's key; and a row for each method and route that says what keeps it from giving that away.
package authz
