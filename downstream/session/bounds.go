package session

import "cmp"

// Bounds are sizes at which the memory and the work of a Session take another turn. What
// clients are told does not depend on them, so that they are no settings; tests make them
// small, for what is beyond them to be tried too.
type Bounds struct {
	// Unacked bounds the responses of a type whose nonces are remembered. Only answers to
	// new subscribes go out before the last ACK, so a client that sends requests and never
	// ACKs is who meets it.
	Unacked int
	// Block bounds what is copied into one piece, in bytes: a client then costs a reference
	// instead of one for each resource.
	Block int
}

// DefaultBounds are those of Sessions that are given none.
var DefaultBounds = Bounds{Unacked: MaxUnacked, Block: 4 << 20}

// MaxUnacked is Bounds.Unacked by default.
const MaxUnacked = 32

// bounds are those of the configuration, or the default ones.
func (c *Config) bounds() *Bounds { return cmp.Or(c.Bounds, &DefaultBounds) }
