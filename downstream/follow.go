package downstream

import (
	"slices"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
)

// follower reports to a Tracer what becomes of one stream's responses. A nil follower does
// nothing, since nobody traces.
type follower struct {
	tracer Tracer

	// The lock is needed because a response may be acknowledged before the sender is done with
	// it.
	mu     sync.Mutex
	client Traced
	asked  map[cache.TypeURL]time.Time // first requests without an answer
	pushes []*followed                 // neither acknowledged nor rejected, oldest first
}

// followed is a Push, with the time at which it was handed to the transport.
type followed struct {
	Push
	sent time.Time
}

// maxFollowed bounds the responses of a stream that a follower remembers until their ACK; a
// Session remembers half as many for one type.
var maxFollowed = 2 * session.DefaultBounds.Unacked

func (s *Server) follow(st *stream) *follower {
	if s.config.Tracer == nil {
		return nil
	}
	return &follower{
		tracer: s.config.Tracer, asked: make(map[cache.TypeURL]time.Time),
		client: Traced{Stream: st.id, Peer: st.peer.Address, Protocol: st.protocol()},
	}
}

// asks notes the first request of a type.
func (f *follower) asks(note session.Note, of *session.Session, now time.Time) {
	if f == nil || note.Kind != session.InitialRequest {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.client.Node = of.Node().GetId()
	f.asked[note.Type] = now
}

// begins notes a response before it is handed to the transport: the client may acknowledge it
// before that returns.
func (f *follower) begins(r *session.Response, size int, now time.Time) *followed {
	if f == nil || !r.Source.Traced() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &followed{Push: Push{
		Client: f.client, Source: r.Source, Type: r.Type, Nonce: r.Nonce, Version: r.Version,
		Resources: r.Resources, Removed: r.Removed, Bytes: size, Partial: r.Partial, Made: now,
	}}
	f.tracer.Pushed(&p.Push)
	if len(f.pushes) == maxFollowed {
		f.judge(f.pushes[0], PushReplaced, "", now)
		f.pushes = slices.Delete(f.pushes, 0, 1)
	}
	f.pushes = append(f.pushes, p)
	return p
}

// sent notes that a response was handed to the transport; p is the result of begins.
func (f *follower) sent(r *session.Response, p *followed, size int, now time.Time) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p != nil {
		p.sent = now
	}
	if at, ok := f.asked[r.Type]; ok && !r.Partial {
		delete(f.asked, r.Type)
		f.tracer.Answered(Subscribe{Client: f.client, Type: r.Type, Asked: at, Answered: now, Resources: len(r.Resources), Bytes: size})
	}
}

// judged notes an ACK or NACK, which also settles earlier responses of the type.
func (f *follower) judged(note session.Note) {
	if f == nil || note.Kind != session.AckRequest && note.Kind != session.NackRequest {
		return
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	at := slices.IndexFunc(f.pushes, func(p *followed) bool { return p.Type == note.Type && p.Nonce == note.Nonce })
	if at < 0 {
		return
	}
	end, message := PushAcked, ""
	if note.Rejected != nil {
		end, message = PushNacked, note.Rejected.Message
	}
	for _, p := range f.pushes[:at] {
		if p.Type == note.Type {
			f.judge(p, PushReplaced, "", now)
		}
	}
	f.judge(f.pushes[at], end, message, now)
	kept := slices.DeleteFunc(f.pushes[:at+1], func(p *followed) bool { return p.Type == note.Type })
	f.pushes = slices.Delete(f.pushes, len(kept), at+1)
}

func (f *follower) judge(p *followed, end PushEnd, message string, now time.Time) {
	f.tracer.Judged(&p.Push, Judgement{End: end, Sent: p.sent, At: now, Message: message})
}

// untold reports the changes that no response will carry.
func (f *follower) untold(all []session.Untold) {
	if f == nil {
		return
	}
	for _, u := range all {
		f.tracer.Untold(u.Source, u.Behind)
	}
}

// over reports what the stream leaves undone at its end.
func (f *follower) over(untold []session.Untold) {
	if f == nil {
		return
	}
	f.untold(untold)
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pushes {
		f.judge(p, PushGone, "", now)
	}
	for t, at := range f.asked {
		f.tracer.Answered(Subscribe{Client: f.client, Type: t, Asked: at, Ended: now})
	}
	f.pushes, f.asked = nil, nil
}
