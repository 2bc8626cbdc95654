package upstream

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/xds-relay/xds-relay/upstream/session"
)

// How an entry gets on, as the log has it: one line for each change, whatever the number of
// groups that notice it. It answers, it is lost, it cannot be reached for another reason than
// before, it is put to use or left. What single groups see of it besides is for debugging.

// standing is what the log has said about an entry. It is guarded by the Conn's mutex.
type standing struct {
	answers bool      // the last word was that it does
	ever    bool      // it did once
	since   time.Time // of the last change to or from that
	told    failures  // since it answered last
	noted   failures  // ever, of what does not end
	served  int       // groups that it is in use for
}

// failures are what was told, by kind. There are few: what is beyond is told no more.
type failures map[string]bool

const maxFailures = 16

// news reports whether something is to be told, and takes note that it is.
func (f *failures) news(kind string) bool {
	if (*f)[kind] || len(*f) >= maxFailures {
		return false
	}
	if *f == nil {
		*f = make(failures)
	}
	(*f)[kind] = true
	return true
}

// sameBut is a message without its numbers, which are those of ports and of times.
func sameBut(message string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, message)
}

// heard takes note of a response. news: the entry did not answer before; away is for how
// long, or zero if it is the first answer.
func (s *standing) heard(now time.Time) (news bool, away time.Duration) {
	if s.answers {
		return false, 0
	}
	if s.ever {
		away = max(now.Sub(s.since), 1)
	}
	s.answers, s.ever, s.since, s.told = true, true, now, nil
	return true, away
}

// lost takes note that nothing comes from the entry any more. first: it was answering.
func (s *standing) lost(now time.Time) (first bool) {
	if first = s.answers; first {
		s.answers, s.since = false, now
	}
	return first
}

// ended is the end of a stream, or of an attempt at one, as people are told about it.
type ended struct {
	session.End
	stream Stream
	began  bool   // it was a stream, and no attempt
	reason string // out of a closed set
	code   string // of gRPC
	retry  time.Duration
}

// kind tells ends apart: of each kind one is told.
func (e ended) kind() string { return e.reason + e.code + sameBut(e.Message) }

// fields are those of a line about it.
func (e ended) fields() []any {
	return []any{"address", e.stream.Entry, "reason", e.reason, "code", e.code, "err", e.Message, "retry_ms", e.retry.Milliseconds()}
}

// sentence says what has happened, and level how much that matters. lost: what had been
// answering does not any more.
func (e ended) sentence(lost bool) (sentence string, level slog.Level) {
	switch {
	case e.NoRoom:
		return "no room for another stream to the control plane: see upstream.max_connections and upstream.max_streams_per_connection", slog.LevelWarn
	case e.Denied:
		return "the control plane refuses the relay: see upstream.headers and upstream.tls", slog.LevelWarn
	case e.reason == closed && lost:
		return "the control plane has closed the stream; it is opened again", slog.LevelInfo
	case e.Refused:
		return "the control plane ends the stream", slog.LevelWarn
	case lost:
		return "lost the control plane; clients keep what they have", slog.LevelWarn
	}
	return "cannot reach the control plane", slog.LevelWarn
}

// tellEnded tells of the end of a stream. While others of the entry are answered, that one
// is not is the group's own affair if the server says so: own reports whether it is the first
// of its kind there. If the stream broke its next attempt will tell.
func (c *Conn) tellEnded(e ended, log *slog.Logger, own func() bool) {
	c.mu.Lock()
	first, lost := false, false
	others := c.comeback.answering > 0 && !e.NoRoom
	broke := e.began && (!e.Refused || e.reason == closed)
	if !others {
		lost = c.standing.lost(time.Now())
	}
	if !others || !broke && !e.Refused {
		first = c.standing.told.news(e.kind())
	}
	c.mu.Unlock()
	to := c.endpoint.Log
	if others && e.Refused && !broke {
		first, to = own(), log
	}
	if !first && !lost {
		log.Debug("upstream stream ended", e.fields()...)
		return
	}
	sentence, level := e.sentence(lost)
	to.Log(context.Background(), level, sentence, e.fields()...)
}

// tellStopped tells that an entry has stopped answering on a connection that is open.
func (c *Conn) tellStopped(text string) {
	c.mu.Lock()
	c.standing.lost(time.Now())
	first := c.standing.told.news(text)
	c.mu.Unlock()
	if first {
		c.endpoint.Log.Warn(text, "address", c.endpoint.Name)
	}
}

// tellAnswers tells that an entry answers.
func (c *Conn) tellAnswers(sotw bool, away time.Duration) {
	mode := Stream{SotW: sotw}.Mode()
	if away == 0 {
		c.endpoint.Log.Info("the control plane answers", "address", c.endpoint.Name, "mode", mode)
		return
	}
	c.endpoint.Log.Info("the control plane answers again", "address", c.endpoint.Name, "mode", mode, "away_ms", away.Milliseconds())
}

// tellNotice tells what was found out about an entry, once.
func (c *Conn) tellNotice(text string) {
	c.mu.Lock()
	first := c.standing.noted.news(sameBut(text))
	c.mu.Unlock()
	if first {
		c.endpoint.Log.Warn(text, "address", c.endpoint.Name)
	}
}

// notices are what people are told.
var notices = map[session.Cause]string{
	session.Waits:     "the control plane does not answer, and clients wait; the next one of the list is put to use",
	session.Stale:     "the control plane does not answer, and nothing is missing yet; the next one of the list is put to use",
	session.Preferred: "a preferred control plane answers again, and is put to use",
}

// enterUse takes note that an entry is put to use for another group, and tells of the first.
// from is the one that was in use; nil: the group has just begun.
func (c *Conn) enterUse(from *Conn, why session.Cause) {
	if from != nil {
		from.leaveUse()
	}
	c.mu.Lock()
	c.standing.served++
	first := from != nil && c.standing.served == 1 && c.standing.told.news(notices[why])
	c.mu.Unlock()
	if first {
		c.endpoint.Log.Warn(notices[why], "address", c.endpoint.Name, "instead_of", from.endpoint.Name)
	}
}

func (c *Conn) leaveUse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.standing.served--
}

// settleUse notes which Conn serves the group, when the group begins and when its list has
// changed.
func (c *Client) settleUse() {
	c.order.Lock()
	defer c.order.Unlock()
	c.mu.Lock()
	var now *Conn
	if len(c.conns) > 0 {
		now = c.conns[c.core.InUse()]
	}
	c.mu.Unlock()
	if now != c.used && now != nil {
		c.leaveUse()
		now.enterUse(nil, session.Waits)
		c.used = now
	}
}

// endUse notes that the group has ended.
func (c *Client) endUse() {
	c.order.Lock()
	defer c.order.Unlock()
	c.leaveUse()
}

func (c *Client) leaveUse() {
	if c.used != nil {
		c.used.leaveUse()
	}
	c.used = nil
}

// firstFailure reports whether an end is of another kind than those of which the group has
// told since the entry answered it.
func (c *Client) firstFailure(conn *Conn, e ended) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.conns, conn) {
		return false // it is not in the list any more, and nobody wonders
	}
	f := c.failed[conn]
	defer func() { c.failed[conn] = f }()
	return f.news(e.kind())
}

// reasoned is what a server said as it ended a stream, or that it said nothing.
func reasoned(message, code string) string {
	return cmp.Or(strings.TrimSpace(message), "it gave no reason but the status "+code)
}
