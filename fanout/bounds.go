package fanout

// Bounds are limits on the memory and the work of a Hub. What is sent to clients and upstream does
// not depend on them, except for Leaving, so they are not in the configuration. Tests make them
// small, to reach what happens beyond them.
type Bounds struct {
	// Part is for how many of the names that a client asks for or gives up at once the lock of their type is held.
	Part int
	// Tombstones says how many removed names may be remembered beside that many resources. Beyond
	// it the Hub looks for names that every reader has been sent.
	Tombstones func(resources int) int
	// Marks is how many marks a client may have, beside two for each of its names, before repeated
	// ones are dropped.
	Marks int
	// News is how many News of a type are kept for clients to share. A client that needs another
	// one gets one of its own.
	News int
	// Gone bounds how many names are remembered of bodies that are no longer here (UP-9).
	Gone int
	// Leaving bounds how many leaving resources are remembered, in addition to the limit by
	// ack_timeout. Beyond it the one that left first is forgotten, and sets no longer list it. This
	// is the one bound that clients may notice, and ORDER-2 allows it.
	Leaving int
}

// DefaultBounds are in force unless Config.Bounds says otherwise.
var DefaultBounds = Bounds{
	Part:       1000,
	Tombstones: func(resources int) int { return 64 + resources/4 },
	Marks:      16,
	News:       16,
	Gone:       100_000,
	// All Clusters of a large mesh can be replaced at once and then stay. Nothing else keeps their
	// bodies: at 2 KiB each, which is much for a Cluster, 50,000 of them take 100 MiB for ten
	// seconds, about as much as the ones that replaced them.
	Leaving: 50_000,
}
