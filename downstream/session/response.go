package session

import (
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/code"
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
	Block      int               // of the News, what is copied into one piece (Bounds.Block)
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

// TTL is what is left of a resource's TTL. It is never nothing: what has expired is
// about to be removed.
func (r *Response) TTL(res *cache.Resource) (left time.Duration, ok bool) {
	ends, ok := r.Ends[res]
	return max(ends.Sub(r.At), time.Millisecond), ok
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

// Reason is a closed set, fit for a metric label; Code maps it to a gRPC
// status.
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

func (e *End) Error() string { return e.Message }

// Code is the google.rpc.Code of an End. Codes of streams appear nowhere else.
func (e *End) Code() code.Code {
	switch e.Reason {
	case BadRequest:
		return code.Code_INVALID_ARGUMENT
	case OverLimit, Overcrowded:
		return code.Code_RESOURCE_EXHAUSTED
	case NodeChanged:
		return code.Code_ABORTED
	case Looped:
		return code.Code_FAILED_PRECONDITION
	case Forbidden:
		return code.Code_PERMISSION_DENIED
	case Unreachable, ShuttingDown, Stalled, Aged:
		return code.Code_UNAVAILABLE
	}
	return code.Code_INTERNAL
}
