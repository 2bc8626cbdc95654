// Package authz holds the relay against rules of what clients may read (NODE-15): random identities, rules,
// requests, updates and changes of the rules, judged by an oracle of its own.
//
// It is for tests only. The oracle turns rules into regular expressions and shares no code with package policy.
// Limitation: it plays the door where names enter a subscription, without connections.
package authz
