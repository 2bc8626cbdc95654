package fanout

// Bounds are sizes at which the memory and the work of a Hub take another turn. What
// clients and upstream are told does not depend on them, except for Leaving, so that they
// are no settings; tests make them small, for what is beyond them to be tried too.
type Bounds struct {
	// Tombstones is how many names that are gone may be remembered beside so many
	// resources before those that no reader waits for are looked for.
	Tombstones func(resources int) int
	// Marks is how many marks a client may have, beside two for each of its names, before
	// repetitions among them are dropped.
	Marks int
	// News bounds what clients that lag behind share: who lags differently shares nothing.
	News int
	// Gone bounds the names that are remembered of bodies that are not here any more (UP-9).
	Gone int
	// Leaving bounds what is remembered of a type that has left, beside ack_timeout. Beyond it
	// what left first is forgotten, and sets do not list it: this is the one bound that clients
	// may see, and ORDER-2 allows it.
	Leaving int
}

// DefaultBounds are those of a Hub that is given none.
var DefaultBounds = Bounds{
	Tombstones: func(resources int) int { return 64 + resources/4 },
	Marks:      16,
	News:       16,
	Gone:       100_000,
	// All Clusters of a large mesh can be replaced at once, and stay. Each is a body that nothing
	// else keeps: with 2 KiB, which is much for a Cluster, 50,000 of them take 100 MiB for ten
	// seconds, about what those take that have replaced them.
	Leaving: 50_000,
}

// bounds are those of the configuration, or the default ones.
func (c *Config) bounds() *Bounds {
	if c.Bounds != nil {
		return c.Bounds
	}
	return &DefaultBounds
}
