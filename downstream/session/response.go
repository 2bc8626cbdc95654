package session

import (
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/code"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// Response is a DeltaDiscoveryResponse or a DiscoveryResponse to send. Its resources are shared
// with all other clients.
type Response struct {
	Delta      bool
	Wrapped    bool // SotW: the resources go with their wrappers (DOWN-SOTW-15)
	Partial    bool // more parts of the same response follow
	Type       cache.TypeURL
	Nonce      string
	Version    string // SotW version_info, Delta system_version_info
	Identifier string // control_plane.identifier
	Resources  []*cache.Resource
	News       *fanout.News      // the News that they are, if they are shared; see fanout.News
	Block      int               // how much of the News is copied into one piece (Bounds.Block)
	Heartbeats []*cache.Resource // sent without their bodies
	Removed    []string          // Delta only
	Errors     []*discovery.ResourceError
	// Oversized lists the resources that are left out; Errors has them, too.
	Oversized []Oversized

	// Source is the update that brought the changes; nil if the response answers the client
	// alone.
	Source *cache.Source

	// Ends says when resources with a TTL expire. The client is sent what is left of the TTL At
	// the time of sending (TTL-5).
	Ends map[*cache.Resource]time.Time
	At   time.Time
}

// TTL returns what is left of a resource's TTL. It is never zero: an expired resource is about to
// be removed.
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
	Message string // it says what to do
}

// Reason is a closed set, fit for a metric label; Code maps it to a gRPC
// status.
type Reason string

const (
	BadRequest  Reason = "bad_request"  // INVALID_ARGUMENT
	OverLimit   Reason = "over_limit"   // RESOURCE_EXHAUSTED
	NodeChanged Reason = "node_changed" // ABORTED
	Forbidden   Reason = "forbidden"    // PERMISSION_DENIED
	Unreachable Reason = "unavailable"  // UNAVAILABLE
	Overcrowded Reason = "too_many"     // RESOURCE_EXHAUSTED: groups.max
	NamesFull   Reason = "names_full"   // RESOURCE_EXHAUSTED: downstream.max_names; a Delta stream goes on
	Glob        Reason = "glob"         // it ends no stream (NAME-11)
	Nameless    Reason = "nameless"     // UNIMPLEMENTED: a type that SotW cannot serve to this client
	HalfSent    Reason = "half_sent"    // RESOURCE_EXHAUSTED: a request that does not go on
	Looped      Reason = "loop"         // FAILED_PRECONDITION
	// RefusedUpstream: the control plane refuses what the client has the group's streams say (UP-21).
	RefusedUpstream Reason = "refused_upstream" // FAILED_PRECONDITION
	ShuttingDown    Reason = "shutting_down"    // UNAVAILABLE
	Drained         Reason = "drained"          // UNAVAILABLE: the relay goes on, and sends its clients away
	// A client that stalls, or whose connection or certificate is old, has asked for nothing wrong and
	// should come back. UNAVAILABLE says so; RESOURCE_EXHAUSTED would tell it to ask for less.
	Stalled            Reason = "stalled"
	Aged               Reason = "connection_age"
	CertificateExpired Reason = "certificate_expired"
	// RulesChanged: what the client may read has changed, and it must ask again (NODE-15).
	RulesChanged Reason = "rules_changed"
	// AskAgain: a type was refused for want of room a while ago (NODE-14).
	AskAgain Reason = "ask_again" // UNAVAILABLE
	// There is no room for a new stream, or another client with less of something needed what this one had.
	StreamsFull     Reason = "streams_full"     // RESOURCE_EXHAUSTED: downstream.max_streams
	MemoryPressure  Reason = "memory"           // UNAVAILABLE
	DisplacedStream Reason = "displaced_stream" // RESOURCE_EXHAUSTED, as the next ones
	DisplacedNames  Reason = "displaced_names"
	DisplacedGroup  Reason = "displaced_group"
	DisplacedType   Reason = "displaced_type"
	// Of a call that goes through to the control plane (LRS-2).
	CallsFull     Reason = "calls_full"     // RESOURCE_EXHAUSTED: passthrough[].max_calls
	DisplacedCall Reason = "displaced_call" // RESOURCE_EXHAUSTED
	Redirected    Reason = "redirected"     // UNAVAILABLE: another control plane is put to use, or the service is not listed any more
)

func (e *End) Error() string { return e.Message }

// Code is the google.rpc.Code of an End. Codes of streams appear nowhere else.
func (e *End) Code() code.Code {
	switch e.Reason {
	case BadRequest:
		return code.Code_INVALID_ARGUMENT
	case OverLimit, Overcrowded, HalfSent, NamesFull, StreamsFull, DisplacedStream, DisplacedNames, DisplacedGroup, DisplacedType, CallsFull, DisplacedCall:
		return code.Code_RESOURCE_EXHAUSTED
	case NodeChanged:
		return code.Code_ABORTED
	case Looped, RefusedUpstream:
		return code.Code_FAILED_PRECONDITION
	case Nameless:
		return code.Code_UNIMPLEMENTED
	case Forbidden:
		return code.Code_PERMISSION_DENIED
	case Unreachable, ShuttingDown, Drained, Stalled, Aged, CertificateExpired, RulesChanged, AskAgain, MemoryPressure, Redirected:
		return code.Code_UNAVAILABLE
	}
	return code.Code_INTERNAL
}
