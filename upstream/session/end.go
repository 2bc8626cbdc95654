package session

// Unsubscribed is the reason for which a response of a type is dropped that was not asked for (UP-10).
const Unsubscribed = "unsubscribed_type"

// End is how a stream ended.
type End struct {
	// Refused means that the server ended the stream itself. Otherwise the transport broke, or
	// could not be made.
	Refused bool
	// Unimplemented means that the status was UNIMPLEMENTED.
	Unimplemented bool
	// NoRoom means that no connection takes the stream, or that it left one to make room for
	// a health check. Nothing is wrong with the entry (UP-1).
	NoRoom bool
	// Exhausted means that the status was RESOURCE_EXHAUSTED, as after a request that is too long.
	Exhausted bool
	// Denied means that the status was UNAUTHENTICATED or PERMISSION_DENIED.
	Denied  bool
	Message string
}
