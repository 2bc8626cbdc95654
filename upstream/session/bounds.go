package session

import "cmp"

// Bounds are sizes beyond which Core asks in several steps, or forgets. They are no settings,
// since they do not change what clients get in the end. Tests make them small to reach them.
type Bounds struct {
	// Pair bounds the names of one pair of requests that asks again (UP-19).
	Pair int
	// Part bounds the names that change at a time, and those of a request that changes what is asked
	// for (UP-17).
	Part int
	// MinRequest is the least limit of a request, in bytes (UP-17).
	MinRequest int
	// Probed bounds the names that a probe asks for (UP-14).
	Probed int
	// Acks bounds the pending ACKs and NACKs if a control plane sends without reading.
	Acks int
	// Solo bounds the streams of quarantined types, and Quarantined the types that are
	// remembered as refused (H-39).
	Solo, Quarantined int
}

// DefaultBounds are the bounds of a Core whose Config has none.
var DefaultBounds = Bounds{
	Pair:       1000,
	Part:       2500,
	MinRequest: 64 << 10,
	Probed:     100,
	Acks:       10000,
	Solo:       8, Quarantined: 128,
}

// bounds are those of the configuration, or the default ones.
func (c *Config) bounds() *Bounds { return cmp.Or(c.Bounds, &DefaultBounds) }
