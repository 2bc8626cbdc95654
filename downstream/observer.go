package downstream

import (
	"time"

	"google.golang.org/grpc/codes"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
)

// Observer gets what happens on client streams, for metrics. Its methods are called from many
// goroutines, under no lock. Protocol is "delta", "sotw" or "rest".
type Observer interface {
	// ClientConnectionClosed is called when the relay closes a connection: before its first stream, or for a
	// reason that concerns all its streams.
	ClientConnectionClosed(reason ClosedFor)
	ClientConnected(protocol string)
	ClientDisconnected(protocol string, reason session.Reason)
	ClientRequest(t cache.TypeURL, kind session.RequestKind)
	// ClientResponse is called when a response was handed to the transport.
	ClientResponse(t cache.TypeURL, resources, removed, bytes int)
	// ClientPropagation gets the time from receiving the oldest change in a response to handing
	// it over, and the id of a trace that shows it, or "".
	ClientPropagation(t cache.TypeURL, after time.Duration, trace string)
	// ClientAck gets the time from handing over a response to its ACK.
	ClientAck(t cache.TypeURL, after time.Duration)
	// ClientPanic is called when a stream was ended because of a bug.
	ClientPanic()
	// ClientStalled is called when a stream was ended because its client does not read.
	ClientStalled()
	// ClientRateLimited is called when a request had to wait.
	ClientRateLimited()
	// ClientReadingWaits is called when a connection is not read on because requests that are not taken
	// in take as much as they may.
	ClientReadingWaits()
	// ClientOversized is called when a resource or response is too large for a client.
	ClientOversized(t cache.TypeURL, what OversizedKind)
	// ClientTypeRefused is called when a client is refused one of its types; told is
	// NoticeErrors or NoticeNothing (NODE-14).
	ClientTypeRefused(t cache.TypeURL, reason session.Reason, told session.Notice)
	// ClientNamesRefused is called when a stream goes on without n of the names that it asks for (VALID-8).
	ClientNamesRefused(reason session.Reason, n int)
	// ClientCallMessage is called when a message of a service that goes through was handed on, up to the control
	// plane or down to the client, and ClientCallEnded when such a call has ended, or was refused.
	ClientCallMessage(service string, up bool, bytes int)
	ClientCallEnded(service string, code codes.Code)
	// ClientPoll is called when a client that polls for a type was answered, with an HTTP status.
	ClientPoll(t cache.TypeURL, code int)
}

// OversizedKind is a closed set, fit for a metric label.
type OversizedKind string

const (
	// OversizedResource was left out of a response.
	OversizedResource OversizedKind = "resource"
	// OversizedResponse was sent all the same: SotW cannot be split.
	OversizedResponse OversizedKind = "response"
)

type nobody struct{}

func (nobody) ClientConnectionClosed(ClosedFor)                                {}
func (nobody) ClientConnected(string)                                          {}
func (nobody) ClientDisconnected(string, session.Reason)                       {}
func (nobody) ClientRequest(cache.TypeURL, session.RequestKind)                {}
func (nobody) ClientResponse(cache.TypeURL, int, int, int)                     {}
func (nobody) ClientPropagation(cache.TypeURL, time.Duration, string)          {}
func (nobody) ClientAck(cache.TypeURL, time.Duration)                          {}
func (nobody) ClientPanic()                                                    {}
func (nobody) ClientStalled()                                                  {}
func (nobody) ClientRateLimited()                                              {}
func (nobody) ClientReadingWaits()                                             {}
func (nobody) ClientOversized(cache.TypeURL, OversizedKind)                    {}
func (nobody) ClientTypeRefused(cache.TypeURL, session.Reason, session.Notice) {}
func (nobody) ClientNamesRefused(session.Reason, int)                          {}
func (nobody) ClientCallMessage(string, bool, int)                             {}
func (nobody) ClientCallEnded(string, codes.Code)                              {}
func (nobody) ClientPoll(cache.TypeURL, int)                                   {}
