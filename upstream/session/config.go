package session

import (
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/header"
)

// WildcardForm is how a wildcard is asked for (WILD-10).
type WildcardForm uint8

const (
	WildcardAuto     WildcardForm = iota // legacy where the type allows it
	WildcardExplicit                     // always "*"
	WildcardLegacy                       // always an empty first request
)

// Config is what Core needs to know. Durations are as in protocol.md §0.
type Config struct {
	// Node is what the relay says of itself (NODE-7), until SetNode.
	Node *core.Node
	// Hop is the relay's id among the relays on the way, which no other process has
	// (NODE-11).
	Hop string
	// SendNodeAlways puts the node into every request, not only into the first of a
	// stream (UP-2).
	SendNodeAlways bool
	// Entries are the control planes, in order of preference; at least one.
	Entries []Entry
	// Headers are those of the group's clients, all of which have sent the same ones
	// (NODE-13).
	Headers []header.Header
	// Versions is when to resume with the versions at hand (RECON-8).
	Versions Versions
	// WildcardForm is how the wildcard is asked for.
	WildcardForm WildcardForm
	// Chunks is how the server's nonces tell that a response has more parts to
	// come (RECON-16).
	Chunks Chunks
	// ExplicitMissing: the server answers every name, so that silence is an error
	// and not an answer (MISS-5).
	ExplicitMissing Tristate
	// Types, if not empty, are the only ones asked for (H-39).
	Types []cache.TypeURL
	// Coalesce is how long changes of interest are gathered after one that went at
	// once, and before the first request of a type (UP-6).
	Coalesce time.Duration
	// MaxRequest bounds one request, in bytes; zero: nothing does (UP-17).
	MaxRequest int
	// Missing and MissingExplicit are the does-not-exist timeouts (MISS-3, MISS-5).
	Missing, MissingExplicit time.Duration
	// Settle and SettleCap tell when a wildcard is complete (RECON-16).
	Settle, SettleCap time.Duration
	// UnavailableAfter is how long upstream may fail until clients are told
	// (ERR-7).
	UnavailableAfter time.Duration
	// HealthCheck: a connection is asked whether anybody is there (MISS-3).
	HealthCheck bool
	// FailoverAfter is how long an entry may fail although nothing is missing, zero
	// for ever, and FailbackAfter how long a preferred one must have answered (UP-14).
	FailoverAfter, FailbackAfter time.Duration
	// Backoff is the schedule of attempts (ERR-1).
	Backoff Backoff
	// Fingerprint makes the versions that clients see.
	Fingerprint cache.Fingerprint
	// Bounds are for tests; nil: DefaultBounds.
	Bounds *Bounds
}

// Versions is when the versions that are here are shown to a control plane (RECON-8).
type Versions uint8

const (
	VersionsSameEntry Versions = iota // if they are its own
	VersionsAlways
	VersionsNever
)

// Chunks is where a server's nonces hold the number of parts that are to follow.
type Chunks uint8

const (
	ChunksAuto    Chunks = iota // ChunksRelay from a relay, else ChunksNone
	ChunksNone                  // nowhere
	ChunksRelay                 // a decimal number after the last "-"
	ChunksDiderot               // the last eight of 24 hexadecimal digits
)

// Tristate is a setting that can be left to what the server says of itself.
type Tristate uint8

const (
	Auto Tristate = iota
	Yes
	No
)

func (t Tristate) or(auto bool) bool { return t == Yes || t == Auto && auto }

// patience is for how long nothing may be heard of a question before somebody looks
// after it: a third of what the answer may take, so that there is a third for looking
// and another for those who are told to do something about it (MISS-3).
func (c *Config) patience() time.Duration { return c.Missing / 3 }
