package session

import (
	"slices"
	"strconv"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/hop"
)

// exchange is what both variants keep of one type on one stream: the subscription, what is to be
// sent, and the responses that await an ACK. It ends with the stream, and its nonces and versions
// say nothing of another type (DOWN-DELTA-2); the order of types is all that one has of another.
type exchange struct {
	url       cache.TypeURL
	group     Membership
	sub       *fanout.Subscription
	requested bool // the type's first request was taken in
	// refusal says why the type is not served, or is nil (NODE-14).
	refusal *refusal
	delta   bool // the stream is Delta
	ends    bool // an outage ends the stream, and no errors are sent for names (ERR-7)
	ttl     bool // the client knows TTLs (TTL-6)
	// refers says that changes of the type wait for the stream's Clusters (ORDER-3).
	refers bool
	// most bounds the responses that are remembered until their ACK (Bounds.Unacked).
	most int

	// counted is how many names the stream keeps of the type (Session.names).
	counted int

	door
	spelled spellings
	// globs has those that a Delta client asks for, and globsTold says what news there was of a
	// client's (NAME-11).
	globs     nameSet
	globsTold Notice

	// space is the size left for one resource in the response that is being made, in bytes (ERR-13).
	space int

	// plane.text is the relay's control_plane.identifier, made of the control plane's.
	plane struct{ of, text string }

	// What the client may hold, and the reasons to send it something:
	holdings
	debts
	renewedTo cache.Seq            // the position up to which renewals were sent
	renewedOf map[string]cache.Seq // the same of some resources, further on
	source    *cache.Source        // the update that brought the pending changes

	// Responses that await an ACK, oldest first:
	unacked   []sent
	lastNonce string
	pushedAt  cache.Seq // of the last nonce without a counter, or a later one
	ackedTo   cache.Seq // the client has accepted everything up to here (NACK-4)
	accepted  string    // the version of the last response that was accepted
	rejected  *Rejection
	times     times
	came      nameSet // what the client came with, if it was sent only the TTL: no NACK has rejected that

	// returning, for Clusters: the client came with versions, it is not known yet whether they
	// still exist, and other types have not waited in vain for that. unanswered is the name
	// without an answer that was found last.
	returning  bool
	unanswered cache.ID

	// Additions and changes that wait for Clusters (ORDER-3):
	postpones bool    // they must wait now
	postponed bool    // some do
	awaited   nameSet // newly asked for and not answered yet; these answers do not wait
	// waitedInVain, for Clusters: other types have waited in vain for an ACK, and none has come since.
	waitedInVain bool

	// starving says why something that the client waits for could not be had when it was last
	// looked at, or is nil (ERR-7).
	starving *statuspb.Status

	// Removals that go after changes of other types (ORDER-2):
	waitSince  time.Time // since when some wait
	staysSince time.Time // since when a full-state set lists what is gone
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

// blocked reports whether pushes wait for an ACK that the client owes. They do not wait for ever
// (DOWN-DELTA-15).
func (x *exchange) blocked(now time.Time, timeout time.Duration) bool {
	return now.Before(x.overdue(timeout))
}

// overdue returns when the wait for an ACK ends; zero if none is due.
func (x *exchange) overdue(timeout time.Duration) time.Time {
	if len(x.unacked) == 0 {
		return time.Time{}
	}
	return x.unacked[len(x.unacked)-1].since.Add(timeout)
}

// tellable returns the names whose error can be sent in a response. A copy says that the error is
// over, so the error goes after it, in another response (ERR-9), and once more after each copy
// that is sent for another reason.
func (x *exchange) tellable(v fanout.View, p *part) (ids []cache.ID) {
	if x.failed.len()+len(x.erred) == 0 {
		return nil
	}
	sent, untold := namesOf(p.resources, p.heartbeats), distinct(slices.Clone(x.changed.items))
	leadsToSent := func(id cache.ID) bool {
		return slices.ContainsFunc(v.Answer(id).Resources(), func(r *cache.Resource) bool { return sent.has(r.Name) })
	}
	x.endErrors(v, p.resources)
	for _, id := range x.failed.take() {
		_, waits := slices.BinarySearch(untold, id)
		switch {
		case !v.Has(id):
		case sent.has(v.Name(id)), leadsToSent(id), waits && v.Answer(id).State == cache.Present:
			x.failed.add(id)
		default:
			ids = append(ids, id)
		}
	}
	return ids
}

// endErrors notes that resources are sent that say of errors told before that they are over. Those that
// still stand are told again.
func (x *exchange) endErrors(v fanout.View, resources []*cache.Resource) {
	if len(x.erred) == 0 {
		return
	}
	for _, r := range resources {
		for name := range r.Names() {
			id, asked := v.Lookup(name)
			if _, told := x.erred[id]; asked && told {
				if drop(&x.erred, id); v.Answer(id).Error != nil {
					x.failed.add(id)
				}
			}
		}
	}
}

// nonce returns the nonce of a response (DOWN-DELTA-3). A push is named after its position alone;
// an answer, and a second response at one position, also have a counter of the stream. The nonce
// ends in the number of chunks that follow (RECON-16).
func (x *exchange) nonce(seq cache.Seq, answer bool, left int, counter *uint64) string {
	n := strconv.AppendUint(append(make([]byte, 0, 64), shortName(x.url)+"."...), uint64(seq), 10)
	if answer || seq <= x.pushedAt {
		*counter++
		n = strconv.AppendUint(append(n, '.'), *counter, 10)
	}
	x.pushedAt = max(x.pushedAt, seq)
	return hop.Part(string(n), left)
}

// shortName returns the name of a type in nonces.
func shortName(t cache.TypeURL) string {
	if name := t.Short(); name != cache.OtherShort {
		return name
	}
	return string(t)
}

// sending notes a response as sent. continued says that pushes have waited since the response
// before it.
func (x *exchange) sending(u sent, continued bool) {
	n := len(x.unacked)
	if u.since = u.at; continued && n > 0 {
		u.since = x.unacked[n-1].since
	}
	if n > 0 && n >= x.most {
		oldest := x.unacked[0]
		if x.unacked = slices.Delete(x.unacked, 0, 1); len(x.unacked) > 0 {
			x.unacked[0].standsFor(&oldest)
		} else {
			u.standsFor(&oldest)
		}
	}
	x.resent(u.carries)
	if x.times.sent = u.at.UnixNano(); n == 0 {
		x.times.owed = x.times.sent
	}
	x.unacked = append(x.unacked, u)
	x.lastNonce = u.nonce
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
func (x *exchange) hasRejected(changed cache.Seq) bool {
	return x.rejected != nil && changed > x.rejected.From && changed <= x.rejected.To && !x.rejected.resent[changed]
}

// resent notes that a response carries changes after the one that the client rejected.
func (x *exchange) resent(changes []cache.Seq) {
	for _, at := range changes {
		if x.hasRejected(at) {
			put(&x.rejected.resent, at, true)
		}
	}
}
