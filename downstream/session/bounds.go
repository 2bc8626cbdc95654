package session

import "cmp"

// Bounds are sizes beyond which a Session saves memory or work. They are no settings, since
// responses do not depend on them; tests make them small to try what is beyond.
type Bounds struct {
	// Unacked bounds the responses of a type whose nonces are remembered. Only answers to new
	// subscribes go out before the last ACK, so only a client that sends requests and never
	// acknowledges reaches it.
	Unacked int
	// Block bounds what is copied into one piece, in bytes. Such a piece costs each client one
	// reference instead of one for each resource.
	Block int
}

// DefaultBounds apply if the configuration has none.
var DefaultBounds = Bounds{Unacked: 32, Block: 4 << 20}

// bounds returns the configuration's Bounds, or the default ones.
func (c *Config) bounds() *Bounds { return cmp.Or(c.Bounds, &DefaultBounds) }
