package downstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
)

// stream is the edge around a Session: it receives on the handler's goroutine. What there is to send is
// sent by the crew of senders.
type stream struct {
	server *Server
	id     uint64
	kind   session.Stream
	peer   session.Peer
	conn   *conn
	place  *place     // of all streams
	names  *allowance // of all names
	since  time.Time
	grpc   grpc.ServerStream
	wire   *wire // nil if the client gets no gzip
	status statusWriter
	ended  atomic.Pointer[session.End] // why the relay ended it, if it did

	in inbox // the receiver's

	tally

	limiter *rate.Limiter // the receiver's; nil until it is needed
	paced   bool          // the receiver's: it has had to wait, which is logged once
	stall   stallWatch    // the sender's
	last    *time.Timer   // to its end; nil: it has none of its own
	follow  *follower     // nil if nobody traces

	mu      sync.Mutex // guards the session; never held while sending
	session *session.Session
	timer   *time.Timer

	sendTurn
}

// tally is for the line about a stream's end, and for people who look at it.
type tally struct {
	requests            int             // the receiver's
	rejects             []cache.TypeURL // the receiver's: the types with a rejection of which operators were told
	refused             cache.TypeURL   // the receiver's: the type over which the relay ends the stream
	nacks               atomic.Int64    // the receiver counts
	responses, sentSize atomic.Int64    // the sender counts
}

// The values of stream.sending.
const (
	idle   = iota
	busy   // it is queued, or a sender works for it
	kicked // the same, and the sender must look once more
	over   // it has ended, and no sender will work for it again
)

// statusWriter ends a stream from outside its handler, which is blocked in receiving and then
// returns. gRPC implements it on the stream in the context, but has no interface with it. The
// alternative is a second standing goroutine for each stream, 3.6 KiB of it.
type statusWriter interface {
	WriteStatus(*status.Status) error
}

// inflater knows how a client compresses its messages; empty or "identity" is not at all. gRPC
// implements it on the same stream, and tells it nowhere else before a message is inflated.
type inflater interface{ RecvCompress() string }

// refusesCompression refuses a stream or call whose client compresses what it sends, unless that is
// accepted: a message is inflated as a whole before anything of it can be bounded.
func (s *Server) refusesCompression(ctx context.Context) *session.End {
	if s.config.AcceptGzip {
		return nil
	}
	by := "?"
	if in, ok := grpc.ServerTransportStreamFromContext(ctx).(inflater); ok {
		by = in.RecvCompress()
	}
	if by != "" && by != encoding.Identity {
		return &session.End{Reason: session.BadRequest, Message: fmt.Sprintf("compressed requests (%.20q) are refused; send them as they are, or set downstream.accept_gzip", by)}
	}
	return nil
}

// serve runs one stream to its end.
func (s *Server) serve(g grpc.ServerStream, kind session.Stream) error {
	writer, ok := grpc.ServerTransportStreamFromContext(g.Context()).(statusWriter)
	if !ok {
		return status.Error(codes.Internal, "xds-relay: built with a version of gRPC that cannot end a stream from outside")
	}
	st := &stream{server: s, kind: kind, grpc: g, status: writer, since: time.Now(), sendTurn: sendTurn{quiet: make(chan struct{})}}
	st.answers(g.Context())
	st.peer, st.conn = peerOf(g.Context(), &s.now.Load().Config)
	st.peer.End, st.peer.Stream = st.end, st
	st.takesLimiter()
	st.in = inbox{delta: kind.Delta, v2: kind.V2, limit: s.config.MaxRequest, from: st.conn.receiver(g.Context(), st.end)}
	defer st.in.from.leave()
	st.session = session.New(&s.now.Load().Config, kind, st.peer, s.config.Groups, s.clusterDeliveries, st.kick)
	st.names = s.names.enter(&st.peer, st)
	st.session.Within(st.names)
	if end := s.register(st); end != nil {
		if end.Reason != session.ShuttingDown {
			s.observer.ClientConnected(st.protocol())
		}
		sendAway(g.Context(), end)
		return s.turnAway(st.protocol(), &st.peer, end)
	}
	// Reconfigure may have run before the stream was registered. The configuration is read under the
	// lock, so that no older one replaces the one that Reconfigure gives to the stream.
	st.with(func(of *session.Session) { of.Reconfigure(&s.now.Load().Config) })
	s.observer.ClientConnected(st.protocol())
	if at, end := s.lifetime(st.conn, st.since); end != nil {
		st.last = time.AfterFunc(time.Until(at), func() {
			sendAway(g.Context(), end)
			st.end(end)
		})
	}
	return st.close(st.receiveAll())
}

// with calls f with the session, which nobody else uses meanwhile.
func (st *stream) with(f func(*session.Session)) {
	st.mu.Lock()
	defer st.mu.Unlock()
	f(st.session)
}

// close ends the stream for the reason that receiving returned, or that the relay had.
func (st *stream) close(err error) error {
	reason, final := receiveFailed, status.Convert(err)
	end := (*session.End)(nil)
	if ended := st.ended.Load(); ended != nil {
		err = ended
	}
	switch {
	case errors.As(err, &end):
		reason, final = end.Reason, statusOf(end)
	case errors.Is(err, io.EOF), final.Code() == codes.Canceled:
		reason, final = closedByClient, nil
	}
	st.tellGone()
	_ = st.status.WriteStatus(final) // a sender that waits for the client gives up; an error means that the client is gone
	st.mu.Lock()
	if st.timer != nil {
		st.timer.Stop()
	}
	st.mu.Unlock()
	if st.last != nil {
		st.last.Stop()
	}
	st.unwatch()
	if was := st.sending.Swap(over); was == busy || was == kicked {
		<-st.quiet
	}
	st.mu.Lock()
	types, groups := st.session.Types(), groupsOf(st.session)
	st.session.Close(time.Now())
	untold := st.session.Untold()
	st.mu.Unlock()
	st.follow.over(untold)
	st.leavesLimiter()
	st.server.unregister(st)
	if reason == session.BadRequest || reason == session.OverLimit {
		st.conn.faulted(len(types))
	}
	st.server.observer.ClientDisconnected(st.protocol(), reason)
	st.tellEnd(reason, final.Message(), types, groups)
	return final.Err()
}

// awaitFirst ends the stream if its first request does not come within a time, unless that is
// zero or heard is called before (VALID-8).
func (st *stream) awaitFirst(within time.Duration) (heard func()) {
	if within == 0 {
		return func() {}
	}
	late := time.AfterFunc(within, func() {
		st.end(&session.End{Reason: session.OverLimit, Message: fmt.Sprintf("no request within %v of opening the stream; see downstream.first_message_timeout", within)})
	})
	return func() { late.Stop() }
}

// receiveAll takes in requests until the stream ends, and returns why it did. It never waits for
// the sender.
func (st *stream) receiveAll() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = st.panicked(p)
		}
	}()
	if end := st.server.refusesCompression(st.grpc.Context()); end != nil {
		return end
	}
	heard := st.awaitFirst(st.server.now.Load().FirstMessage)
	defer heard()
	for first := true; ; first = false {
		note, due, news, err := st.receive()
		if err != nil {
			return err
		}
		if first {
			heard()
			aside(func() { st.tellOpen(note.Type) })
		}
		st.server.observer.ClientRequest(note.Type, note.Kind)
		st.tellRefusals(news)
		if note.Kind == session.AckRequest {
			st.conn.acknowledged()
			st.server.observer.ClientAck(note.Type, note.After)
		}
		st.follow.judged(note)
		st.tellVerdict(note)
		if due {
			st.kick()
		}
		if note.Charged || note.Unasked > 0 {
			st.pace(note)
		}
	}
}

// receive takes in one request. due says that there may be something to send now.
func (st *stream) receive() (note session.Note, due bool, news []session.Refusal, err error) {
	in := &st.in
	if err := st.grpc.RecvMsg(in); err != nil {
		return note, false, nil, err
	}
	st.requests++
	if in.refused != nil {
		return note, false, nil, in.refused
	}
	var asked []any
	debug := st.server.debugs()
	if debug {
		asked = in.describe(st.server.now.Load().Types)
	}
	seen := st.outline()
	note, due, news, end := st.takeIn()
	st.showRequest(seen, note.Kind)
	st.names.displace()
	if debug {
		st.tellRequest(note.Kind, asked)
	}
	if end != nil {
		err = end
	}
	return note, due, news, err
}

// takeIn passes the request that was received to the session.
func (st *stream) takeIn() (note session.Note, due bool, news []session.Refusal, end *session.End) {
	defer st.awaitTurn(st.in.names())()
	st.mu.Lock()
	defer st.mu.Unlock()
	now := time.Now()
	request, acks := st.in.request, false
	st.in.request = nil // it is not needed after this
	if request == nil {
		note, acks = st.session.Ack(&st.in.bare, now)
	}
	if !acks {
		note, end = st.takeAside(request, now)
	}
	st.follow.asks(note, st.session, now)
	return note, st.session.Due(), st.session.Refusals(), end
}

// takeAside passes a request to the session; nil stands for the bare one.
func (st *stream) takeAside(request proto.Message, now time.Time) (note session.Note, end *session.End) {
	aside(func() {
		if request == nil {
			if request, end = st.in.bare.Message(st.kind.Delta); end != nil {
				return
			}
		}
		if req, ok := request.(*discovery.DeltaDiscoveryRequest); ok {
			note, end = st.session.DeltaRequest(req, now)
		} else {
			note, end = st.session.SotWRequest(request.(*discovery.DiscoveryRequest), now)
		}
		if end != nil {
			st.refused = cache.TypeURL(request.(interface{ GetTypeUrl() string }).GetTypeUrl())
		}
	})
	return note, end
}

// kick makes sure that a sender looks at the session. It does not block, and may be called from
// anywhere.
func (st *stream) kick() {
	for {
		switch st.sending.Load() {
		case idle:
			if st.sending.CompareAndSwap(idle, busy) {
				st.server.senders.add(st)
				return
			}
		case busy:
			if st.sending.CompareAndSwap(busy, kicked) {
				return
			}
		default:
			return
		}
	}
}

// send sends everything that is due. At the end of the stream, it is the last sender. shared says
// that it must not wait for the client, since other streams need the sender.
func (st *stream) send(shared bool) {
	switch st.sendAll(shared) {
	case mayWait:
		go st.send(false)
	case ended:
		if st.sending.Swap(over) == over {
			close(st.quiet)
		}
	}
}

// The outcomes of sending.
type progress int

const (
	done    progress = iota // there is nothing more to send
	ended                   // the stream has ended
	mayWait                 // there is more, and sending it may have to wait for the client
)

// sendAll sends until there is nothing more, or until a send might have to wait.
func (st *stream) sendAll(shared bool) (p progress) {
	defer func() {
		if bug := recover(); bug != nil {
			st.end(st.panicked(bug))
			p = ended
		}
	}()
	for {
		now := time.Now()
		if shared && st.mayHoldUp(now) {
			return mayWait
		}
		r, due, news, end := st.next(now)
		st.tellRefusals(news)
		if st.follow != nil {
			var untold []session.Untold
			st.with(func(of *session.Session) { untold = of.Untold() })
			st.follow.untold(untold)
		}
		if end != nil {
			st.end(end)
			return ended
		}
		if r != nil {
			f := encode(r)
			st.server.oversized(r, f.size, st.log)
			member := st.pack(r, f)
			begins := time.Now()
			push := st.follow.begins(r, f.size, begins)
			st.sendBegins(begins)
			err := st.hand(f, member)
			st.sendEnds()
			ends := time.Now()
			if ends.Sub(begins) > heldUp {
				st.slow = ends.Add(slowFor)
			}
			if err != nil {
				return ended // the receiver returns the reason
			}
			st.owed += f.size
			st.responses.Add(1)
			st.sentSize.Add(int64(f.size))
			st.server.observer.ClientResponse(r.Type, len(r.Resources), len(r.Removed), f.size)
			st.server.propagated(r, ends)
			st.follow.sent(r, push, f.size, ends)
			if st.server.debugs() {
				st.tellResponse(r, f.size)
			}
			st.showResponse(r, f.size)
		}
		if due {
			continue
		}
		if st.sending.CompareAndSwap(busy, idle) {
			return done
		}
		if !st.sending.CompareAndSwap(kicked, busy) {
			return ended
		}
	}
}

// mayHoldUp reports whether the next send may keep the crew from the other streams: it may wait for the client, or
// deflate much.
func (st *stream) mayHoldUp(now time.Time) bool {
	if deflates := st.wire != nil; deflates || now.Before(st.slow) {
		return true
	}
	return st.owed >= freely && !st.settled()
}

// slowFor is how long a stream that has held up a sender keeps one of its own.
const slowFor = time.Minute

// freely is how many bytes may be sent without an ACK so that no send waits: gRPC blocks a send
// when 64 KiB of a stream are not written yet.
const freely = 32 << 10

// settled reports whether the client owes no ACK, and so has read everything.
func (st *stream) settled() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.session.Settled() {
		st.owed = 0
	}
	return st.owed == 0
}

// next returns the next response, if there is one now. due says that there may be another at
// once.
func (st *stream) next(now time.Time) (r *session.Response, due bool, news []session.Refusal, end *session.End) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.owed > 0 && st.session.Settled() {
		st.owed = 0
	}
	r, end = st.session.Next(now)
	news = st.session.Refusals()
	if end != nil || r != nil && st.session.Due() {
		return r, true, news, end
	}
	if at := st.session.Deadline(now); !at.IsZero() {
		if st.timer == nil {
			st.timer = time.AfterFunc(at.Sub(now), st.kick)
		} else {
			st.timer.Reset(at.Sub(now))
		}
	}
	return r, false, news, nil
}

// propagated measures how long changes took from upstream to the transport. If a response has
// several parts, the last one counts.
func (s *Server) propagated(r *session.Response, now time.Time) {
	if r.Source == nil || r.Partial {
		return
	}
	after, exemplar := now.Sub(r.Source.At), ""
	if s.config.Tracer != nil {
		exemplar = s.config.Tracer.Exemplar(r.Source, after)
	}
	s.observer.ClientPropagation(r.Type, after, exemplar)
}

// end ends the stream for a reason of the relay's; the first call decides.
func (st *stream) end(e *session.End) {
	if st.ended.CompareAndSwap(nil, e) {
		_ = st.status.WriteStatus(statusOf(e)) // an error means that the client is gone
	}
}

func (st *stream) panicked(p any) *session.End {
	st.server.observer.ClientPanic()
	st.log().Error("bug: a client stream panicked", "err", fmt.Sprint(p), "stack", string(debug.Stack()))
	return panicEnd()
}

func panicEnd() *session.End {
	return &session.End{Reason: bug, Message: "xds-relay: internal error; the stream was ended, others are not affected"}
}

func tooLarge(size, limit int) *session.End {
	return &session.End{Reason: session.OverLimit, Message: fmt.Sprintf("a request of %d bytes exceeds the limit of %d; raise downstream.max_request_bytes", size, limit)}
}

func (st *stream) protocol() string {
	if st.kind.Delta {
		return "delta"
	}
	return "sotw"
}
