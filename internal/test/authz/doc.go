// Package authz holds the relay against rules of what clients may read: random identities, rules, requests,
// updates and changes of the rules, judged by an oracle of its own.
package authz
