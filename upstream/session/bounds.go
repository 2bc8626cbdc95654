package session

import "cmp"

// Bounds are sizes at which a Core asks in several steps for what it could ask for in one,
// or forgets. What clients are told in the end does not depend on them, so that they are
// no settings; tests make them small, for what is beyond them to be tried too.
type Bounds struct {
	// Pair is how many names are asked for again in one pair of requests, and PairBytes how
	// long they may be together (UP-19).
	Pair, PairBytes int
	// MinRequest is what the limit of a request is not halved below, in bytes (UP-17).
	MinRequest int
	// Probed bounds the names that a probe asks for (UP-14).
	Probed int
	// Verdicts bounds what a control plane that sends without reading can pile up.
	Verdicts int
	// Solo bounds the streams of quarantined types, and Quarantined the types that are
	// remembered as refused (H-39).
	Solo, Quarantined int
}

// DefaultBounds are those of a Core that is given none.
var DefaultBounds = Bounds{
	Pair: 1000, PairBytes: 64 << 10,
	MinRequest: 64 << 10,
	Probed:     100,
	Verdicts:   10000,
	Solo:       8, Quarantined: 128,
}

// bounds are those of the configuration, or the default ones.
func (c *Config) bounds() *Bounds { return cmp.Or(c.Bounds, &DefaultBounds) }
