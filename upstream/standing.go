package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/xds-relay/xds-relay/internal/events"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// This file logs each change of an entry's state once, however many groups notice it: it answers,
// it is lost, it cannot be reached for a new reason, the relay switches to it. Other
// observations of single groups are logged for debugging only.

// standing is what the log has said about an entry. It is guarded by the Conn's mutex.
type standing struct {
	answers bool      // the log's last word is that the entry answers
	ever    bool      // the entry has answered before
	since   time.Time // when answers last changed
	told    failures  // logged since the entry last answered
	noted   failures  // notices, each of which is logged only once
	chosen  bool      // the log's last word is that the entry answers or is used, and not that it was left
}

// failures has the kinds of failures that were logged. Beyond maxFailures no more are logged.
type failures []string

const maxFailures = 16

// news reports whether a kind is to be logged, and notes that it was.
func (f *failures) news(kind string) bool {
	if slices.Contains(*f, kind) || len(*f) >= maxFailures {
		return false
	}
	*f = append(*f, kind)
	return true
}

// sameBut is a message without its digits, which are those of ports and of times.
func sameBut(message string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, message)
}

// heard notes a response. news means that the entry had not been answering; away is for how
// long, or zero if this is its first answer.
func (s *standing) heard(now time.Time) (news bool, away time.Duration) {
	if s.answers {
		return false, 0
	}
	if s.ever {
		away = max(now.Sub(s.since), 1)
	}
	s.answers, s.ever, s.chosen, s.since, s.told = true, true, true, now, nil
	return true, away
}

// lost notes that the entry does not answer any more. first means that it had been answering.
func (s *standing) lost(now time.Time) (first bool) {
	if first = s.answers; first {
		s.answers, s.since = false, now
	}
	return first
}

// ended is the end of a stream, or of an attempt to open one, as it is logged.
type ended struct {
	session.End
	stream Stream
	began  bool   // the stream was open
	reason string // one of Reasons
	code   string // the gRPC status
	retry  time.Duration
}

// kind identifies ends of which only the first is logged.
func (e ended) kind() string { return e.reason + e.code + sameBut(e.Message) }

// fields are the attributes of the log line.
func (e ended) fields() []any {
	return []any{"address", e.stream.Entry, "reason", e.reason, "code", e.code, "err", e.Message, "retry_ms", e.retry.Milliseconds()}
}

// sentence is the text of the log line. lost means that the entry had been answering.
func (e ended) sentence(lost bool) (sentence string, level slog.Level) {
	switch {
	case e.Kind == session.EndNoRoom:
		return "no room for another stream to the control plane: see upstream.max_connections and upstream.max_streams_per_connection", slog.LevelWarn
	case e.Kind == session.EndDenied:
		return "the control plane refuses the relay: see upstream.headers and upstream.tls", slog.LevelWarn
	case e.reason == closed && lost:
		return "the control plane has closed the stream; it is opened again", slog.LevelInfo
	case e.Refused():
		return "the control plane ends the stream", slog.LevelWarn
	case lost:
		return "lost the control plane; clients keep what they have", slog.LevelWarn
	}
	return "cannot reach the control plane", slog.LevelWarn
}

// tellEnded logs the end of a stream. If the server refuses the stream while it answers others,
// this concerns only the group, and own reports whether the end is the first of its kind there.
// If the stream broke while others are answered, the next attempt will show why. An entry that has no
// room for a stream may answer all the same: it is not lost.
func (c *Conn) tellEnded(e ended, log *slog.Logger, group string, own func() bool) {
	c.mu.Lock()
	first, lost := false, false
	noRoom := e.Kind == session.EndNoRoom
	others := c.comeback.answering > 0 && !noRoom
	broke := e.began && (!e.Refused() || e.reason == closed)
	if !others && !noRoom {
		lost = c.standing.lost(time.Now())
	}
	if !others || !broke && !e.Refused() {
		first = c.standing.told.news(e.kind())
	}
	c.mu.Unlock()
	to, about := c.endpoint.Log, events.Event{Kind: events.ControlPlaneLost}
	if others && e.Refused() && !broke {
		first, to = own(), log
	}
	if to == log || noRoom {
		about = events.Event{Kind: events.GroupRefused, Group: group, Subject: "group " + group}
	}
	if !first && !lost {
		log.Debug("upstream stream ended", e.fields()...)
		return
	}
	sentence, level := e.sentence(lost)
	to.Log(context.Background(), level, sentence, e.fields()...)
	about.Level, about.Message = events.LevelOf(level), fmt.Sprintf("%s: %s (%s)", sentence, e.Message, e.code)
	c.event(about)
}

// event publishes something about the entry.
func (c *Conn) event(e events.Event) {
	e.ControlPlane = c.endpoint.Name
	c.endpoint.Events.Publish(e)
}

// tellStopped logs that an entry has stopped answering on an open connection.
func (c *Conn) tellStopped() {
	const text = "the control plane has stopped answering, though its connection is open"
	c.mu.Lock()
	c.standing.lost(time.Now())
	first := c.standing.told.news(text)
	c.mu.Unlock()
	if first {
		c.endpoint.Log.Warn(text, "address", c.endpoint.Name)
		c.event(events.Event{Kind: events.ControlPlaneLost, Level: events.Warn, Message: text})
	}
}

// tellAnswers logs that an entry answers.
func (c *Conn) tellAnswers(sotw bool, away time.Duration) {
	mode := Stream{SotW: sotw}.Mode()
	if away == 0 {
		c.endpoint.Log.Info("the control plane answers", "address", c.endpoint.Name, "mode", mode)
		c.event(events.Event{Kind: events.ControlPlaneBack, Level: events.Info, Message: "the control plane answers"})
		return
	}
	c.endpoint.Log.Info("the control plane answers again", "address", c.endpoint.Name, "mode", mode, "away_ms", away.Milliseconds())
	c.event(events.Event{Kind: events.ControlPlaneBack, Level: events.Info, Message: fmt.Sprintf("the control plane answers again, after %v", away.Round(time.Millisecond))})
}

// tellNotice logs a fact about an entry, once.
func (c *Conn) tellNotice(text string) {
	c.mu.Lock()
	first := c.standing.noted.news(sameBut(text))
	c.mu.Unlock()
	if first {
		c.endpoint.Log.Warn(text, "address", c.endpoint.Name)
	}
}

// notices are the log messages about a switch.
var notices = map[session.Cause]string{
	session.Waits:     "the control plane does not answer, and clients wait; the next one of the list is used",
	session.Stale:     "the control plane does not answer, and nothing is missing yet; the next one of the list is used",
	session.Preferred: "a preferred control plane answers again and is used",
}

// tellSwitch logs the first switch of a group from another entry to this one. While the entry does
// not answer, each group that tries it leaves it soon, and only the first is logged at all.
func (c *Conn) tellSwitch(from *Conn, why session.Cause) {
	from.mu.Lock()
	left := from.standing.chosen
	from.standing.chosen = false
	from.mu.Unlock()
	c.mu.Lock()
	fresh := left || !c.standing.chosen
	first := fresh && (c.standing.answers || c.standing.told.news(notices[why]))
	c.standing.chosen = true
	c.mu.Unlock()
	if first {
		c.endpoint.Log.Warn(notices[why], "address", c.endpoint.Name, "instead_of", from.endpoint.Name)
		c.event(events.Event{Kind: events.ControlPlaneSwitched, Level: events.Warn, Message: fmt.Sprintf("%s, instead of %s", notices[why], from.endpoint.Name)})
	}
}

// firstFailure reports whether an end is the first of its kind that the group logs since the
// entry last answered it.
func (c *Client) firstFailure(conn *Conn, e ended) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.conns, conn) {
		return false // the entry is not in the list any more
	}
	f := c.failed[conn]
	defer func() { c.failed[conn] = f }()
	return f.news(e.kind())
}
