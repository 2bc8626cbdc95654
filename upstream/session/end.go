package session

// Unsubscribed is the reason for which a response of a type is dropped that was not asked for (UP-10).
const Unsubscribed = "unsubscribed_type"

// End is how a stream, or an attempt to open one, ended.
type End struct {
	Kind    EndKind
	Message string
}

// EndKind is why a stream ended, as far as the Core tells reasons apart.
type EndKind uint8

const (
	// EndBroken: the transport broke, or could not be made.
	EndBroken EndKind = iota
	// EndNoRoom: no connection takes the stream, or it left one to make room for a health check. Nothing is
	// wrong with the entry (UP-1).
	EndNoRoom
	// The server itself ended the stream, with a status: EndDenied for UNAUTHENTICATED and PERMISSION_DENIED,
	// EndUnimplemented for UNIMPLEMENTED, EndExhausted for RESOURCE_EXHAUSTED, as after a request that is too
	// long, EndRefused for others.
	EndRefused
	EndDenied
	EndUnimplemented
	EndExhausted
)

// Refused reports whether the server ended the stream itself.
func (e End) Refused() bool { return e.Kind >= EndRefused }
