package downstream

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Tracer follows updates to the clients that they concern. Its methods are called from many
// goroutines, under no lock of this package but the small one that a stream has for its traces.
// They must not block.
type Tracer interface {
	// Pushed is called when a response with changes of traced updates is about to be handed to
	// the transport.
	Pushed(p *Push)
	// Judged is called once for each Push, at its end, whichever end it has.
	Judged(p *Push, v Judgement)
	// Untold is called when no response to a client will carry a traced update: there was nothing
	// to send after all, the client has gone before, or it is so far behind that it is not
	// followed.
	Untold(s *cache.Source, behind bool)
	// Answered is called when the first request of a type on a stream got its first answer, or
	// none.
	Answered(s Subscribe)
	// Exemplar returns the id of the trace that shows a change of this source which took so long
	// to reach a client, or "" if it is not certain that one is kept.
	Exemplar(s *cache.Source, after time.Duration) string
}

// Traced says which client a trace is about.
type Traced struct {
	Stream   uint64
	Node     string
	Peer     string
	Protocol string // "delta" or "sotw"
}

// Push is a response that sends changes to one client. Nothing in it changes once the Tracer has
// it.
type Push struct {
	Client  Traced
	Source  *cache.Source
	Type    cache.TypeURL
	Nonce   string
	Version string
	// Resources and Removed are its contents; others share them.
	Resources []*cache.Resource
	Removed   []string
	Bytes     int
	// Partial says that more parts of the same response follow; only the last part settles
	// anything.
	Partial bool
	// Made is when the response was made.
	Made time.Time
}

// Judgement says how a Push ended.
type Judgement struct {
	End PushEnd
	// Sent is when it was handed to the transport; zero means that it was not.
	Sent time.Time
	At   time.Time
	// Message is the client's message of a NACK.
	Message string
}

// PushEnd is a closed set.
type PushEnd string

// The values of PushEnd.
const (
	PushAcked    PushEnd = "ack"
	PushNacked   PushEnd = "nack"
	PushReplaced PushEnd = "replaced" // the client answered a later one first
	PushGone     PushEnd = "gone"     // its stream ended
)

// Subscribe is a client's first request of a type, and its outcome.
type Subscribe struct {
	Client Traced
	Type   cache.TypeURL
	// Asked is when the request came. Answered is when the answer was handed to the transport; it
	// is zero if the stream ended without one, at Ended.
	Asked, Answered, Ended time.Time
	// Resources and Bytes describe the answer.
	Resources, Bytes int
}
