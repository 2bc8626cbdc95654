package cache

import (
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
)

// Update is what one upstream response (or one timer of the stream it belongs
// to) says about the resources of one type. Resources are already encoded, so
// that applying it under a lock only moves pointers.
type Update struct {
	// At is when it was received: TTLs count from here (TTL-1).
	At time.Time
	// Stream is the one on which it came, Age for how long that had been open: what
	// a control plane says as soon as it is back may be doubted (H-22).
	Stream uint64
	Age    time.Duration
	// AfterSwitch: it comes from a control plane to which the relay turned although
	// nothing was missing (UP-14).
	AfterSwitch bool
	// First: it is the first response on its lane of a stream: the lane's origin has
	// answered (RECON-8).
	First bool
	// Source goes with the changes to the clients; it may be nil.
	Source *Source
	// Set are the resources it carries, each with the upstream's own version.
	Set []Received
	// Heartbeats are bodyless resources that are here already, at the version
	// upstream gave them (TTL-4).
	Heartbeats []Heartbeat
	// Negative are bodyless resources that deny the aliases they list (NAME-6).
	Negative []*Resource
	// Removed are the names that upstream says do not exist.
	Removed []string
	// Errors are upstream's `resource_errors` (ERR-8).
	Errors []Error
	// Missing are names whose does-not-exist timer has run out; Unproven: on a stream that has
	// carried nothing of the type (MISS-4).
	Missing  []string
	Unproven bool
	// Unanswered are the same where upstream is known to answer every name, so
	// that silence is an error, not an answer (MISS-5).
	Unanswered []string
	// Overdue are names not announced again in time by an origin that was brought
	// no versions (RECON-12), and globs whose members are all here with this (RECON-16).
	Overdue []string
	// LeftOut are names that upstream is not asked for, since its list has no room for them (UP-21).
	LeftOut []string
	// Kept are names that it mentions without a change of their state: in a fault, an error or a
	// heartbeat (ERR-8, ERR-10). They do not count as missing from it.
	Kept []string
	// Malformed are those of them whose answer cannot be used, though it shows that they exist;
	// Unreadable: there is an answer that cannot be used, and any name may be the one (ERR-10).
	Malformed  []string
	Unreadable bool
	// Full: Set is all there is, except for Kept (TRANSLATE-5).
	Full bool
	// Synced: with this, the wildcard set is complete (RECON-16).
	Synced bool
	// Unchanged: the stream was shown what is there of a wildcard's set and has not answered. By now its
	// silence counts (MISS-3, RECON-11).
	Unchanged bool
	// Sweep: what the present generation has not announced by now does not exist (RECON-12).
	Sweep bool
}

// Received is a resource and the version under which upstream knows it. The
// latter is only ever sent back upstream (RECON-6).
type Received struct {
	*Resource
	Upstream string
	// TTL is how long it is good for from now on, or zero (TTL-1).
	TTL time.Duration
}

// Heartbeat renews a resource with a TTL; a TTL of zero says that it is good for ever.
type Heartbeat struct {
	Name string
	TTL  time.Duration
}

// Error is why upstream cannot give a resource.
type Error struct {
	Name   string
	Status *statuspb.Status
}

// Resolves reports whether an error is an answer: upstream's last word on a name, of any
// code but those that say that it cannot answer now (protocol.md §0).
func Resolves(status *statuspb.Status) bool {
	const cancelled, deadlineExceeded, aborted = 1, 4, 10 // google.rpc.Code
	switch status.GetCode() {
	case 0, cancelled, deadlineExceeded, aborted, Unavailable:
		return false
	}
	return true
}

// NotFound is google.rpc.Code NOT_FOUND: the one error that means removal (ERR-8).
const NotFound = 5

// Unavailable is google.rpc.Code UNAVAILABLE.
const Unavailable = 14

// ResourceExhausted is google.rpc.Code RESOURCE_EXHAUSTED: a resource is too
// large for a client (ERR-13).
const ResourceExhausted = 8
