package downstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/passthrough"
)

// passed is a call that goes through (LRS-2). Each direction has a goroutine, which holds one message at most and waits
// until gRPC takes it: so a side that does not read makes the other one wait, and nobody else.
type passed struct {
	server  *Server
	service *Service
	to      Through
	peer    session.Peer
	conn    *conn
	place   *place
	since   time.Time
	grpc    grpc.ServerStream
	status  statusWriter
	in      parcel          // the receiver's
	ctx     context.Context //nolint:containedctx // it lasts as long as the call
	cancel  context.CancelCauseFunc
	sender  sync.WaitGroup            // of what the client sends
	said    atomic.Pointer[presented] // nil: nothing was admitted yet

	up, down flowed
}

// presented is what a client was admitted by.
type presented struct {
	node []byte // in wire form; nil: the service has none
	id   string // the node's
}

// flowed counts what has gone one way.
type flowed struct{ messages, bytes atomic.Int64 }

// parcel takes in a message of a client, or only the reason why it is refused.
type parcel struct {
	passthrough.Message
	limit   int // in bytes
	from    receiver
	refused *session.End
}

func (m *parcel) keep(data mem.BufferSlice) {
	size := data.Len()
	defer m.from.takenIn(size)
	if size > m.limit {
		m.refused = tooLarge(size, m.limit)
		return
	}
	m.Keep(data)
}

// serve leads the call through, and returns how it has ended.
func (p *passed) serve(method string) error {
	p.in = parcel{limit: p.server.config.MaxRequest, from: p.conn.receiver(p.ctx, p.end)}
	p.in.from.goesThrough()
	if at, end := p.server.lifetime(p.conn, p.since); end != nil {
		last := time.AfterFunc(time.Until(at), func() {
			sendAway(p.ctx, end)
			p.end(end)
		})
		defer last.Stop()
	}
	var err error
	p.guard(func() { err = p.lead(method) })
	final, reason := p.verdict(err)
	_ = p.status.WriteStatus(final) // receiving returns; an error means that the client is gone
	p.cancel(nil)
	p.sender.Wait()
	p.in.from.leave()
	p.server.gone(p)
	p.tellEnd(final, reason)
	return final.Err()
}

// lead opens the call at the control plane, and hands on what comes until one side ends it.
func (p *passed) lead(method string) error {
	if end := p.server.refusesCompression(p.ctx); end != nil {
		return end
	}
	if end := session.CannotGoUp(p.peer.Headers); end != nil {
		return end
	}
	if p.service.SaysNode {
		if err := p.receive(); err != nil {
			return early(err)
		}
	} else if end := p.admit(nil); end != nil {
		return end
	}
	up, err := p.to.Open(p.ctx, Opening{p.service, method, p.peer, p.said.Load().node})
	if err != nil {
		return err
	}
	defer up.Leave()
	p.sender.Go(func() { p.guard(func() { p.forward(up, p.service.SaysNode) }) })
	return p.answer(up)
}

// early explains the end of a call that has not said its node.
func early(err error) error {
	if errors.Is(err, io.EOF) {
		return &session.End{Reason: session.BadRequest, Message: "xds-relay: the call has ended before its first message, which says the node"}
	}
	return err
}

// receive takes in a message of the client, which may have it handed on.
func (p *passed) receive() error {
	if err := p.grpc.RecvMsg(&p.in); err != nil {
		return err
	}
	if p.in.refused != nil {
		return p.in.refused
	}
	if p.service.SaysNode {
		return p.readNode(&p.in.Message)
	}
	return nil
}

// maxNode bounds a node (VALID-8).
const maxNode = 256 << 10

// readNode looks for a node in a load report. The first report has to have an admissible one; a later report may have the
// same again, or another one that is admissible, too.
func (p *passed) readNode(report *passthrough.Message) error {
	node, err := passthrough.NodeIn(report.Bytes())
	said := p.said.Load()
	switch {
	case err != nil:
		return &session.End{Reason: session.BadRequest, Message: "xds-relay: " + err.Error()}
	case said != nil && (node == nil || bytes.Equal(node, said.node)):
		return nil
	case len(node) > maxNode:
		return &session.End{Reason: session.OverLimit, Message: fmt.Sprintf("xds-relay: node of %d bytes exceeds the limit of %d", len(node), maxNode)}
	}
	if end := p.admit(append([]byte{}, node...)); end != nil {
		return end
	}
	return nil
}

// admit asks whether a client may have the call. Rules may change meanwhile, so that Rejudge did not know of it.
func (p *passed) admit(node []byte) *session.End {
	for {
		rules := p.server.rules.Load()
		is := &presented{node: node}
		if end := p.judge(is); end != nil {
			return end
		}
		p.said.Store(is)
		if rules == p.server.rules.Load() {
			return nil
		}
	}
}

// judge says why a client may not have the call, if that is so.
func (p *passed) judge(is *presented) *session.End {
	var node *core.Node
	if is.node != nil {
		var err error
		if node, err = passthrough.ReadNode(is.node); err != nil {
			return &session.End{Reason: session.BadRequest, Message: "xds-relay: " + err.Error()}
		}
		is.id = node.GetId()
	}
	return p.to.Admit(p.peer, node)
}

// rejudge ends the call if rules that have changed do not admit its client any more (NODE-15).
func (p *passed) rejudge() {
	if said := p.said.Load(); said != nil {
		if end := p.judge(&presented{node: said.node}); end != nil {
			p.end(end)
		}
	}
}

// forward hands on what the client sends; has says that its first message was received.
func (p *passed) forward(up ThroughCall, has bool) {
	for ; ; has = false {
		if !has {
			if err := p.receive(); errors.Is(err, io.EOF) {
				_ = up.CloseSend() // it never fails
				return
			} else if err != nil {
				p.cancel(err)
				return
			}
		}
		size := p.in.Len()
		if up.SendMsg(&p.in.Message) != nil {
			return // answer has the reason
		}
		p.handed(&p.up, true, size)
	}
}

// answer hands on what the control plane sends, and returns how it ends the call.
func (p *passed) answer(up ThroughCall) error {
	if header, err := up.Header(); err == nil && len(header) > 0 { // an error comes again
		if err := p.grpc.SendHeader(header); err != nil {
			return err
		}
		p.conn.acknowledged() // it is of use
	}
	m := new(passthrough.Message)
	for {
		if err := up.RecvMsg(m); err != nil {
			p.grpc.SetTrailer(up.Trailer())
			return err
		}
		p.conn.acknowledged()
		size := m.Len()
		if err := p.grpc.SendMsg(m); err != nil {
			return err
		}
		p.handed(&p.down, false, size)
	}
}

func (p *passed) handed(to *flowed, up bool, size int) {
	to.messages.Add(1)
	to.bytes.Add(int64(size))
	p.server.observer.ClientCallMessage(p.service.Name, up, size)
}

// end implements served. Whoever receives or waits for the control plane returns.
func (p *passed) end(e *session.End) {
	p.cancel(e)
	_ = p.status.WriteStatus(statusOf(e)) // an error means that the client is gone
}

// verdict is the status with which the call ends, and the reason if that is the relay's.
func (p *passed) verdict(err error) (*status.Status, session.Reason) {
	end := (*session.End)(nil)
	cause := context.Cause(p.ctx)
	switch {
	case errors.As(cause, &end), errors.As(err, &end):
		return statusOf(end), end.Reason
	case errors.Is(err, io.EOF):
		return status.New(codes.OK, ""), ""
	case cause != nil && p.grpc.Context().Err() == nil: // what the client has sent cannot be received
		return status.Convert(cause), ""
	}
	return status.Convert(err), ""
}

// guard ends the call if f panics.
func (p *passed) guard(f func()) {
	defer func() {
		if bug := recover(); bug != nil {
			p.server.observer.ClientPanic()
			p.server.log.Error("bug: a call that goes through panicked", "service", p.service.Name, "err", fmt.Sprint(bug), "stack", string(debug.Stack()))
			p.end(panicEnd())
		}
	}()
	f()
}

// tellEnd counts and logs the end of the call. The control plane's own are as many as there are calls, and are for
// debugging.
func (p *passed) tellEnd(final *status.Status, reason session.Reason) {
	p.server.observer.ClientCallEnded(p.service.Name, final.Code())
	if reason != "" {
		p.server.observer.ClientDisconnected(throughProtocol, reason)
	}
	if reason == session.BadRequest || reason == session.OverLimit {
		p.conn.faulted(1)
	}
	id := ""
	if said := p.said.Load(); said != nil {
		id = said.id
	}
	log, text := p.server.log.Debug, "a call that went through has ended"
	switch {
	case refusals[reason]:
		log, text = p.server.log.Warn, "client refused"
	case reason != "":
		log = p.server.log.Info
	case final.Code() == codes.Unimplemented:
		log, text = p.server.log.Warn, "the control plane lacks a service that is listed in passthrough, or a method of it; its clients are told so"
	}
	log(text, "protocol", throughProtocol, "service", p.service.Name, "node_id", id, "peer", p.peer.Address, "identity", p.peer.Identity,
		"reason", reason, "code", final.Code().String(), "err", final.Message(), "dur_ms", time.Since(p.since).Milliseconds(),
		"messages_up", p.up.messages.Load(), "bytes_up", p.up.bytes.Load(), "messages_down", p.down.messages.Load(), "bytes_down", p.down.bytes.Load())
}
