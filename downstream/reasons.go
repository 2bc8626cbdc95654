package downstream

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// Reasons for the end of a stream that are not the Session's.
const (
	closedByClient session.Reason = "closed"
	receiveFailed  session.Reason = "receive_failed"
	bug            session.Reason = "panic"
	mustWait       session.Reason = "flood_wait" // its client has opened streams too fast
	operator       session.Reason = "operator"   // an operator has ended it
)

// Reasons lists why streams end, for an Observer.
func Reasons() []session.Reason {
	return []session.Reason{
		closedByClient, receiveFailed, bug, mustWait, operator, session.BadRequest, session.OverLimit, session.NodeChanged, session.Forbidden, session.Unreachable,
		session.Overcrowded, session.Nameless, session.HalfSent, session.Looped, session.RefusedUpstream, session.ShuttingDown, session.Drained, session.Stalled, session.Aged, session.CertificateExpired, session.RulesChanged, session.AskAgain, session.NamesFull,
		session.StreamsFull, session.MemoryPressure, session.DisplacedStream, session.DisplacedNames, session.DisplacedGroup, session.DisplacedType,
		session.CallsFull, session.DisplacedCall, session.Redirected,
	}
}

// statusOf returns the gRPC status of an End.
func statusOf(e *session.End) *status.Status {
	if e.Reason == operator {
		return status.New(codes.Unavailable, e.Message)
	}
	return status.New(codes.Code(e.Code()), e.Message)
}
