package upstream

import (
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/upstream/session"
)

// replanned is why a stream ended that the relay itself has closed.
const replanned = "replanned"

// closed is why one ended that the server has ended without an error.
const closed = "closed"

// moved is why one ended that makes room on its connection (UP-1).
const moved = "moved"

// Ending says how a stream ended, from the error that receiving gave, and names
// the reason. UNAVAILABLE is never evidence against a type: it is what a transport
// that breaks looks like, and a server that shuts down (H-39).
func Ending(err error) (session.End, string) {
	st := status.Convert(err)
	switch {
	case errors.Is(err, errMoved):
		return session.End{NoRoom: true, Message: err.Error()}, moved
	case errors.Is(err, errNoRoom):
		return session.End{NoRoom: true, Message: err.Error()}, "no_room"
	}
	if errors.Is(err, io.EOF) {
		return session.End{Refused: true, Message: "the server ended the stream"}, closed
	}
	e := session.End{Message: reasoned(st.Message(), st.Code().String())}
	switch st.Code() {
	case codes.Unavailable:
		return e, "unavailable"
	case codes.Canceled:
		return e, "cancelled"
	case codes.DeadlineExceeded:
		return e, "deadline"
	case codes.Unimplemented:
		e.Refused, e.Unimplemented = true, true
		return e, "unimplemented"
	case codes.Internal, codes.Unknown:
		// An undecodable message ends only its stream (ERR-12).
		e.Refused = !strings.Contains(e.Message, "unmarshal")
		return e, "error"
	case codes.Unauthenticated, codes.PermissionDenied:
		e.Refused, e.Denied = true, true
		return e, "refused"
	case codes.ResourceExhausted:
		e.Refused, e.Exhausted = true, true
		return e, "refused"
	default:
		e.Refused = true
		return e, "refused"
	}
}

// Reasons are why streams end, or cannot be opened: what an Observer may be told.
func Reasons() []string {
	return []string{replanned, moved, "no_room", closed, "unavailable", "cancelled", "deadline", "unimplemented", "error", "refused"}
}

// panicked is why a response is not used that could not be taken in.
const panicked = "panic"

// Drops are why responses are not used: what an Observer may be told.
func Drops() []string { return []string{session.Unsubscribed, panicked} }
