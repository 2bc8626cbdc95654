package session

// Unsubscribed is why a response is not used that is of a type which nothing was asked of (UP-10).
const Unsubscribed = "unsubscribed_type"

// End is how a stream ended.
type End struct {
	// Refused: the server ended it with a status of its own; otherwise the
	// transport broke, or never was.
	Refused bool
	// Unimplemented: that status said that there is no such method.
	Unimplemented bool
	// NoRoom: no connection takes the stream, or one has to do without it, so that there
	// is room to ask whether anybody is there. Nothing is wrong with the entry (UP-1).
	NoRoom bool
	// Exhausted: it said RESOURCE_EXHAUSTED, as servers do of a request that is too long.
	Exhausted bool
	// Denied: it said UNAUTHENTICATED or PERMISSION_DENIED.
	Denied  bool
	Message string
}
