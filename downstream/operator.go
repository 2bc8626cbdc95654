package downstream

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/events"
)

// Events about clients, for operators: rejections, refusals, and clients that are not in step for long.

// who is the client, for an event. It takes the session's lock.
func (st *stream) who() *events.Client {
	st.mu.Lock()
	node := st.session.Node().GetId()
	st.mu.Unlock()
	return &events.Client{Stream: st.id, Node: node, Peer: st.peer.Address, Identity: st.peer.Identity, Protocol: st.protocol()}
}

// event publishes something about a type of the client's.
func (st *stream) event(t cache.TypeURL, e events.Event) {
	if st.server.config.Events == nil {
		return
	}
	e.Type, e.Client, e.Subject = t, st.who(), subjectOf(st.id, t)
	if e.Group == "" {
		st.with(func(of *session.Session) { e.Group = of.GroupOf(t) })
	}
	st.server.config.Events.Publish(e)
}

func subjectOf(stream uint64, t cache.TypeURL) string { return fmt.Sprintf("stream %d %s", stream, t) }

// tellVerdict tells what a request says of what the client was sent.
func (st *stream) tellVerdict(note session.Note) {
	if note.Rejected == nil {
		st.tellAccepted(note.Type)
		return
	}
	st.nacks.Add(1)
	st.tellNack(note)
}

// tellNack logs and publishes that the client has rejected a response (NACK-9).
func (st *stream) tellNack(note session.Note) {
	r := note.Rejected
	st.log().Warn("client rejected a response", "type", note.Type, "nonce", note.Nonce, "nack", r.Message, "resources", r.Count, "first", r.First)
	if st.server.config.Events == nil {
		return
	}
	if !slices.Contains(st.rejects, note.Type) {
		st.rejects = append(st.rejects, note.Type)
	}
	st.event(note.Type, events.Event{Kind: events.Nack, Level: events.Warn, Names: r.First, Count: r.Count, Message: r.Message})
}

// tellAccepted publishes that the client rejects a type no more, if it did.
func (st *stream) tellAccepted(t cache.TypeURL) {
	i := slices.Index(st.rejects, t)
	if i < 0 {
		return
	}
	still := false
	st.with(func(of *session.Session) { still = of.Rejects(t) })
	if still {
		return
	}
	st.rejects = slices.Delete(st.rejects, i, i+1)
	st.event(t, events.Event{Kind: events.NackOver, Level: events.Info, Message: "the client has accepted what it had rejected, or what has replaced that"})
}

// tellGone publishes that the client's rejections are over because its stream is.
func (st *stream) tellGone() {
	for _, t := range st.rejects {
		st.event(t, events.Event{Kind: events.NackOver, Level: events.Info, Message: "the stream of the client has ended"})
	}
}

// tellRefusal publishes that a type is refused while the stream goes on (NODE-14).
func (st *stream) tellRefusal(r session.Refusal) {
	if r.Names == 0 && (r.Reason != session.Glob || r.First) {
		st.event(r.Type, events.Event{Kind: events.TypeRefused, Level: events.Warn, Group: r.Group, Message: r.Message})
	}
}

// --- clients that are not in step ---

// WatchStale publishes which clients are not in step for ServerConfig.StaleAfter, and when they are again,
// until ctx ends.
func (s *Server) WatchStale(ctx context.Context) {
	if s.config.Events == nil {
		return
	}
	var late map[lateType]behindTime
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		after := s.now.Load().StaleAfter
		late = s.lookForStale(late, after, time.Now())
		timer.Reset(max(after/10, time.Second))
	}
}

// lateType is a type that a stream's client is not in step with.
type lateType struct {
	stream uint64
	t      cache.TypeURL
}

// behindTime is since when a client is not in step, as far as is known, and the event that tells of it, once it
// is told.
type behindTime struct {
	since time.Time
	told  *events.Event
}

// lookForStale publishes what has changed since it was last called, and returns which clients are late now.
func (s *Server) lookForStale(was map[lateType]behindTime, after time.Duration, now time.Time) map[lateType]behindTime {
	is := make(map[lateType]behindTime)
	open := make(map[uint64]bool)
	for _, st := range s.open() {
		open[st.id] = true
		if after == 0 {
			continue
		}
		var late []session.Late
		st.with(func(of *session.Session) { late = of.Late(now.Add(-after)) })
		for _, l := range late {
			key := lateType{st.id, l.Type}
			is[key] = st.staleness(was[key], l, after, now)
		}
	}
	for key, l := range was {
		if _, still := is[key]; !still && l.told != nil {
			s.tellInStep(*l.told, open[key.stream])
		}
	}
	return is
}

// staleness publishes that a client is late for too long, once. What it has not been sent may be old and yet be asked for
// only now, so the time counts from when that was first seen.
func (st *stream) staleness(was behindTime, l session.Late, after time.Duration, now time.Time) behindTime {
	if was.told != nil {
		return was
	}
	since, message := l.Owes, "the client has not acknowledged what it was sent"
	if since.IsZero() {
		message = "the client has not been sent what there is: it owes an ACK of another type, or does not read"
		if since = was.since; since.IsZero() {
			since = now
		}
	}
	if now.Sub(since) < after {
		return behindTime{since: since}
	}
	e := events.Event{
		Kind: events.Stale, Level: events.Warn, Group: l.Group, Type: l.Type, Client: st.who(), Subject: subjectOf(st.id, l.Type),
		Count: l.Behind, Since: since, Message: message,
	}
	st.server.config.Events.Publish(e)
	return behindTime{since, &e}
}

// tellInStep publishes the end of what an event tells.
func (s *Server) tellInStep(e events.Event, open bool) {
	e.Kind, e.Level, e.Count, e.Message = events.StaleOver, events.Info, 0, "the client has acknowledged what it lacked, or rejected it"
	if !open {
		e.Message = "the stream of the client has ended"
	}
	s.config.Events.Publish(e)
}
