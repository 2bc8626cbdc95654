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

// Identity is who the group is to control planes. It stays for as long as the group does.
type Identity struct {
	// Node is the group's node (NODE-7), until SetNode.
	Node *core.Node
	// NodeVaries means that the node's dynamic parameters are not in the group's key, so that they are
	// the word of some clients (NODE-2, UP-21).
	NodeVaries bool
	// Hop is the relay's id in the via header, which no other process has (NODE-11).
	Hop string
	// Headers are those of the group's clients, which all send the same ones (NODE-13).
	Headers []header.Header
}

// Dialect is how requests are composed and responses read. A stream keeps to one, since a server keeps state while
// the stream lives.
type Dialect struct {
	// Versions is when to show a control plane the versions in the Hub (RECON-8).
	Versions Versions
	// WildcardForm is how the wildcard is asked for.
	WildcardForm WildcardForm
	// Chunks is how the server's nonces show that more parts of a response follow (RECON-16).
	Chunks Chunks
	// ExplicitMissing means that the server answers every name, so that silence is an
	// error and not an answer (MISS-5).
	ExplicitMissing Tristate
	// MaxRequest bounds one request, in bytes; zero means no bound (UP-17).
	MaxRequest int
}

// Failover is when another control plane is turned to (UP-14).
type Failover struct {
	// FailoverAfter is how long an entry may fail while nothing is missing; zero means for
	// ever. FailbackAfter is how long a preferred one must have answered.
	FailoverAfter, FailbackAfter time.Duration
}

// Config is the configuration of a Core. Durations are as in protocol.md §0.
type Config struct {
	Identity
	Dialect
	// SendNodeAlways puts the node into every request, not only into the first of a stream (UP-2).
	SendNodeAlways bool
	// Entries are the control planes, in order of preference; at least one.
	Entries []Entry
	// Types, if not empty, are the only ones asked for (H-39).
	Types []cache.TypeURL
	// Answers has the types that need no trial, since the entry has answered them; nil: no type is
	// tried (UP-21).
	Answers *Answers
	// Prefetch are the types that may be asked for before a client does, of those that Prefetchable lists (UP-28).
	Prefetch []cache.TypeURL
	// Coalesce is how long changes of interest are gathered, after a request and before the
	// first one of a type (UP-6).
	Coalesce time.Duration
	// MaxSet bounds what the resources of a lane take, in bytes of their wire form; zero means no
	// bound (VALID-8).
	MaxSet int
	// Missing and MissingExplicit are the does-not-exist timeouts (MISS-3, MISS-5).
	Missing, MissingExplicit time.Duration
	// Settle and SettleCap tell when a wildcard is complete (RECON-16).
	Settle, SettleCap time.Duration
	// UnavailableAfter is how long upstream may fail before clients learn of it (ERR-7).
	UnavailableAfter time.Duration
	// HealthCheck means that silent connections are checked (MISS-3).
	HealthCheck bool
	// AliveEvery is how long nothing may come on a stream before it is checked although nothing is
	// asked, so that the age of what is on disk is known (RECON-19); zero means for ever.
	AliveEvery time.Duration
	Failover
	// Backoff is the schedule of attempts (ERR-1).
	Backoff Backoff
	// Fingerprint makes the versions that clients see.
	Fingerprint cache.Fingerprint
	// Bounds are for tests; nil: DefaultBounds.
	Bounds *Bounds
}

// Versions is when the versions in the Hub are shown to a control plane (RECON-8).
type Versions uint8

const (
	VersionsSameEntry Versions = iota // if they came from the same control plane
	VersionsAlways
	VersionsNever
)

// Chunks is where a server's nonces have the number of parts that follow.
type Chunks uint8

const (
	ChunksAuto    Chunks = iota // ChunksRelay from a relay, else ChunksNone
	ChunksNone                  // nowhere
	ChunksRelay                 // a decimal number after the last "-"
	ChunksDiderot               // the last eight of 24 hexadecimal digits
)

// Tristate is a setting that can depend on whether the server identifies itself as a relay.
type Tristate uint8

const (
	Auto Tristate = iota
	Yes
	No
)

func (t Tristate) or(auto bool) bool {
	if t == Auto {
		return auto
	}
	return t == Yes
}

// patience is how long a question may be unanswered before the relay does something about it. It
// is a third of Missing: another third is for the health check, and the last one for acting on
// its result (MISS-3).
func (c *Config) patience() time.Duration { return c.Missing / 3 }

// quiet is how long a new entry has to answer before clients are told that the one before does not (UP-14).
func (c *Config) quiet() time.Duration { return min(c.patience()/2, c.UnavailableAfter) }
