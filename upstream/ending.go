package upstream

import (
	"cmp"
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/upstream/session"
)

// Reasons for which a stream ended.
const (
	replanned = "replanned" // the relay closed it
	closed    = "closed"    // the server ended it without an error
	moved     = "moved"     // it made room on its connection (UP-1)
)

// Ending returns how a stream ended, given the error of receiving, and the reason. UNAVAILABLE
// is never evidence against a type: a broken transport looks the same, and so does a server that
// shuts down (H-39).
func Ending(err error) (session.End, string) {
	st := status.Convert(err)
	switch {
	case errors.Is(err, errMoved):
		return session.End{Kind: session.EndNoRoom, Message: err.Error()}, moved
	case errors.Is(err, errNoRoom):
		return session.End{Kind: session.EndNoRoom, Message: err.Error()}, "no_room"
	case errors.Is(err, io.EOF):
		return session.End{Kind: session.EndRefused, Message: "the server ended the stream"}, closed
	}
	e := session.End{Message: cmp.Or(strings.TrimSpace(st.Message()), "it gave no reason but the status "+st.Code().String())}
	switch st.Code() {
	case codes.Unavailable:
		return e, "unavailable"
	case codes.Canceled:
		return e, "cancelled"
	case codes.DeadlineExceeded:
		return e, "deadline"
	case codes.Internal, codes.Unknown:
		// An undecodable message ends only its stream (ERR-12).
		if !strings.Contains(e.Message, "unmarshal") {
			e.Kind = session.EndRefused
		}
		return e, "error"
	case codes.Unimplemented:
		e.Kind = session.EndUnimplemented
		return e, "unimplemented"
	case codes.Unauthenticated, codes.PermissionDenied:
		e.Kind = session.EndDenied
	case codes.ResourceExhausted:
		e.Kind = session.EndExhausted
	default:
		e.Kind = session.EndRefused
	}
	return e, "refused"
}

// Reasons are all reasons for which streams end or cannot be opened, as an Observer gets them.
func Reasons() []string {
	return []string{replanned, moved, "no_room", closed, "unavailable", "cancelled", "deadline", "unimplemented", "error", "refused"}
}

// panicked is the reason for which a response is dropped that made the relay panic.
const panicked = "panic"

// Drops are all reasons for which responses are dropped, as an Observer gets them.
func Drops() []string { return []string{session.Unsubscribed, session.Excessive, panicked} }
