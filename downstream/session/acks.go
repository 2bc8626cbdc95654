package session

import (
	"slices"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// acks records the responses of one type that await the client's ACK or NACK, and what it has said of
// those before (DOWN-DELTA-6, DOWN-DELTA-15, NACK-4).
type acks struct {
	unacked   []sent // oldest first
	most      int    // how many of them are remembered (Bounds.Unacked)
	lastNonce string
	pushedAt  cache.Seq // of the last nonce without a counter, or a later one
	ackedTo   cache.Seq // the client has accepted everything up to here (NACK-4)
	accepted  string    // the version of the last response that was accepted
	rejected  *Rejection
	times     times
	came      nameSet // what the client came with, if it was sent only the TTL: no NACK has rejected that
}

// times are for people: when the last response was sent, when the client last accepted one, and since
// when it owes an ACK. Each is Unix time in ns; 0: never.
type times struct{ sent, acked, owed int64 }

type sent struct {
	nonce, version string

	seq cache.Seq
	at  time.Time
	// since is when pushes began to wait for the client. An answer does not prolong the wait: a
	// client that asks and never acknowledges would get no pushes.
	since time.Time
	// partial says that more chunks of the same response follow. An ACK of this one accepts
	// nothing before the last chunk is accepted.
	partial bool
	changes bool           // it adds or changes resources
	listing fanout.Listing // of what it is about
	// carries says when its resources changed, if a response before it was rejected or may be.
	carries []cache.Seq
	// source has the probes that wait for the client's verdict; nil: none does.
	source *cache.Source
}

// Rejection is the last response that the client rejected, with the changes after From up to To,
// except those that a later response has carried. At is when the NACK came.
type Rejection struct {
	From, To cache.Seq
	At       time.Time
	// Since is the time of the first of the rejections without an end between them.
	Since          time.Time
	resent         map[cache.Seq]bool
	Message        string
	fanout.Listing // of the response
}

// covers reports whether a change is among what was rejected.
func (r *Rejection) covers(changed cache.Seq) bool {
	return changed > r.From && changed <= r.To && !r.resent[changed]
}

// blocked reports whether pushes wait for an ACK that the client owes. They do not wait for ever
// (DOWN-DELTA-15).
func (a *acks) blocked(now time.Time, timeout time.Duration) bool {
	return now.Before(a.overdue(timeout))
}

// overdue returns when the wait for an ACK ends; zero if none is due.
func (a *acks) overdue(timeout time.Duration) time.Time {
	if len(a.unacked) == 0 {
		return time.Time{}
	}
	return a.unacked[len(a.unacked)-1].since.Add(timeout)
}

// sending notes a response as sent. continued says that pushes have waited since the response
// before it.
func (a *acks) sending(u sent, continued bool) {
	n := len(a.unacked)
	if u.since = u.at; continued && n > 0 {
		u.since = a.unacked[n-1].since
	}
	if n > 0 && n >= a.most {
		oldest := a.unacked[0]
		if a.unacked = slices.Delete(a.unacked, 0, 1); len(a.unacked) > 0 {
			a.unacked[0].standsFor(&oldest)
		} else {
			u.standsFor(&oldest)
		}
	}
	a.resent(u.carries)
	if a.times.sent = u.at.UnixNano(); n == 0 {
		a.times.owed = a.times.sent
	}
	a.unacked = append(a.unacked, u)
	a.lastNonce = u.nonce
}

// standsFor notes that the ACK of a response stands for that of another one, too (ORDER-3).
func (u *sent) standsFor(older *sent) {
	u.changes = u.changes || older.changes
	u.source = older.source.With(u.source)
}

// takeAck takes in the ACK or NACK of a response; unknown nonces are ignored (DOWN-DELTA-6). No other
// is expected of the responses before it; an ACK accepts those, too.
func (x *exchange) takeAck(nonce string, e *statuspb.Status, now time.Time) Note {
	note := Note{Type: x.url, Kind: SubscribeRequest}
	i := slices.IndexFunc(x.unacked, func(s sent) bool { return s.nonce == nonce })
	if i < 0 {
		return note
	}
	s, from := x.unacked[i], x.ackedTo
	if i > 0 && !x.unacked[i-1].partial {
		from = x.unacked[i-1].seq // a NACK says nothing of the responses before it
	}
	for _, u := range x.unacked[:i+1] {
		u.source.Done(now)
	}
	x.unacked = slices.Delete(x.unacked, 0, i+1)
	if x.times.owed = 0; len(x.unacked) > 0 {
		x.times.owed = x.unacked[0].at.UnixNano()
	}
	note.Nonce = nonce
	if e != nil {
		since := now
		if x.rejects() {
			since = x.rejected.Since
		}
		x.rejected = &Rejection{From: from, To: s.seq, At: now, Since: since, Message: NackMessage(e), Listing: s.listing}
		for _, u := range x.unacked {
			x.resent(u.carries)
		}
		note.Kind, note.Rejected = NackRequest, x.rejected
		return note
	}
	x.accepted, x.waitedInVain, x.times.acked = s.version, false, now.UnixNano()
	if !s.partial {
		x.ackedTo = max(x.ackedTo, s.seq)
	}
	if x.rejected == nil && len(x.unacked) == 0 {
		x.came = nil
	}
	note.Kind, note.After = AckRequest, now.Sub(s.at)
	return note
}

// hasRejected reports whether the client has rejected what changed at a position (NACK-4).
func (a *acks) hasRejected(changed cache.Seq) bool {
	return a.rejected != nil && a.rejected.covers(changed)
}

// resent notes that a response carries changes after the one that the client rejected.
func (a *acks) resent(changes []cache.Seq) {
	for _, at := range changes {
		if a.hasRejected(at) {
			put(&a.rejected.resent, at, true)
		}
	}
}
