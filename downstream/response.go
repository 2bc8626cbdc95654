package downstream

import (
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Response is what a Session wants sent: a DeltaDiscoveryResponse or a
// DiscoveryResponse whose resources are shared with all other clients.
type Response struct {
	Delta      bool
	Partial    bool // more of the same follows
	Type       cache.TypeURL
	Nonce      string
	Version    string // SotW version_info, Delta system_version_info
	Identifier string // control_plane.identifier
	Resources  []*cache.Resource
	News       *fanout.News      // that they may be; see fanout.News
	block      int               // of the News, what is copied into one piece (Bounds.Block)
	Heartbeats []*cache.Resource // sent without their bodies
	Removed    []string          // Delta only
	Errors     []*discovery.ResourceError
	// Oversized are resources that are left out: they stand in Errors, too.
	Oversized []Oversized

	// Source is where the changes in it come from; nil: it answers the client alone.
	Source *cache.Source

	// Ends is when resources expire that have a TTL; what is left of it At the time
	// of sending is what the client is told (TTL-5).
	Ends map[*cache.Resource]time.Time
	At   time.Time
}

// ttl is what is left of a resource's TTL. It is never nothing: what has expired is
// about to be removed.
func (r *Response) ttl(res *cache.Resource) (left time.Duration, ok bool) {
	ends, ok := r.Ends[res]
	return max(ends.Sub(r.At), time.Millisecond), ok
}

// Reasons are why streams end: what an Observer may be told.
func Reasons() []Reason {
	return []Reason{
		closedByClient, receiveFailed, bug, BadRequest, OverLimit, NodeChanged, Forbidden, Unreachable,
		Overcrowded, Looped, ShuttingDown, Stalled, Aged,
	}
}

// Oversized is a resource that is too large for the client.
type Oversized struct {
	Name  string
	Bytes int
}

func resourceError(name string, status *statuspb.Status) *discovery.ResourceError {
	return &discovery.ResourceError{
		ResourceName: &discovery.ResourceName{Name: name},
		ErrorDetail:  status,
	}
}

// End is why a Session ends its stream.
type End struct {
	Reason  Reason
	Message string // says what to do
}

// Reason is a closed set, fit for a metric label; the edge maps it to a gRPC
// status (stream.go).
type Reason string

const (
	BadRequest   Reason = "bad_request"   // INVALID_ARGUMENT
	OverLimit    Reason = "over_limit"    // RESOURCE_EXHAUSTED
	NodeChanged  Reason = "node_changed"  // ABORTED
	Forbidden    Reason = "forbidden"     // PERMISSION_DENIED
	Unreachable  Reason = "unavailable"   // UNAVAILABLE
	Overcrowded  Reason = "too_many"      // RESOURCE_EXHAUSTED: groups.max
	Looped       Reason = "loop"          // FAILED_PRECONDITION
	ShuttingDown Reason = "shutting_down" // UNAVAILABLE
	// A client that stalls, or a connection that is old, has asked for nothing
	// wrong, and is to come back: UNAVAILABLE says so, RESOURCE_EXHAUSTED would
	// tell it to ask for less.
	Stalled Reason = "stalled"
	Aged    Reason = "connection_age"
)
