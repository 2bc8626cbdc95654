// Package policy decides which client may read which resource, by the rules of a file
// (authz.rules_file; NODE-15).
//
// It is pure: a [Policy] never changes, and a new file makes a new one. Rules only allow. The rules
// that match a client's identity and node are its [Grants]; what none of them allows is denied.
//
// It never asks whether a resource exists, so that a client learns nothing of what it may not read.
// It knows no streams: package session asks it where names enter a subscription.
package policy
