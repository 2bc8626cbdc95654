package downstream

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Tracer follows updates to the clients whom they concern. Its methods are called from
// many goroutines, under no lock of this package but a stream's small one for its
// traces; they must not block.
type Tracer interface {
	// Pushed: a response with changes of traced updates is about to be handed to the
	// transport.
	Pushed(p *Push)
	// Judged: a Push has come to its end. It is told once of each, whatever end it has.
	Judged(p *Push, v Judgement)
	// Untold: there was nothing to tell a client of traced updates after all, or it has
	// gone before it could be told; or it is so far behind that it is not followed.
	Untold(s *cache.Source, behind bool)
	// Answered: the first request of a type on a stream got its first answer, or none.
	Answered(s Subscribe)
	// Exemplar is the id of the trace that shows a change of this source which took so
	// long to reach a client, or "" if none will surely be kept.
	Exemplar(s *cache.Source, after time.Duration) string
}

// Traced says which client a trace is about.
type Traced struct {
	Stream   uint64
	Node     string
	Peer     string
	Protocol string // "delta" or "sotw"
}

// Push is a response that tells one client of changes. Nothing in it changes once the
// Tracer has it, except what Sent says.
type Push struct {
	Client  Traced
	Source  *cache.Source
	Type    cache.TypeURL
	Nonce   string
	Version string
	// Resources and Removed are what it tells; others share them.
	Resources []*cache.Resource
	Removed   []string
	Bytes     int
	// Partial: more of the same follows, and only the last part settles anything.
	Partial bool
	// Made is when its turn came.
	Made time.Time
}

// Judgement is what became of a Push.
type Judgement struct {
	End PushEnd
	// Sent is when it was handed to the transport; zero: it was not.
	Sent time.Time
	At   time.Time
	// Message is the client's, of a NACK.
	Message string
}

// PushEnd is a closed set.
type PushEnd string

// The values of PushEnd.
const (
	PushAcked    PushEnd = "ack"
	PushNacked   PushEnd = "nack"
	PushReplaced PushEnd = "replaced" // a later one was judged first
	PushGone     PushEnd = "gone"     // its stream ended
)

// Subscribe is a client's first request of a type, and what came of it.
type Subscribe struct {
	Client Traced
	Type   cache.TypeURL
	// Asked is when the request came. Answered is when the answer was handed to the
	// transport; zero: the stream ended at Ended without one.
	Asked, Answered, Ended time.Time
	// Of the answer.
	Resources, Bytes int
}
