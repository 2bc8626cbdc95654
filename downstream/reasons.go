package downstream

import "github.com/xds-relay/xds-relay/downstream/session"

// Reasons for the end of a stream that are not the Session's.
const (
	closedByClient session.Reason = "closed"
	receiveFailed  session.Reason = "receive_failed"
	bug            session.Reason = "panic"
	mustWait       session.Reason = "flood_wait" // its client has opened streams too fast
)

// Reasons lists why streams end, for an Observer.
func Reasons() []session.Reason {
	return []session.Reason{
		closedByClient, receiveFailed, bug, mustWait, session.BadRequest, session.OverLimit, session.NodeChanged, session.Forbidden, session.Unreachable,
		session.Overcrowded, session.HalfSent, session.Looped, session.RefusedUpstream, session.ShuttingDown, session.Drained, session.Stalled, session.Aged, session.CertificateExpired, session.RulesChanged, session.AskAgain, session.NamesFull,
		session.StreamsFull, session.MemoryPressure, session.DisplacedStream, session.DisplacedNames, session.DisplacedGroup, session.DisplacedType,
		session.CallsFull, session.DisplacedCall, session.Redirected,
	}
}
