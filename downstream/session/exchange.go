package session

import (
	"slices"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/hop"
)

// exchange is what both variants keep of one type on one stream: the
// subscription, what it has yet to be told, and which responses await their ACK.
// Nothing of it survives the stream, or influences another type (DOWN-DELTA-2).
type exchange struct {
	url   cache.TypeURL
	short string // of the url, for nonces
	hub   *fanout.Hub
	leave func()           // gives the hub back
	renew func(*core.Node) // says more of the client upstream; may be nil
	sub   *fanout.Subscription
	own   bool // the type has a group apart from the stream's others (NODE-6)
	// refusal is why it is not served, or nil (NODE-14).
	refusal *refusal
	delta   bool // the stream's variant
	ends    bool // an outage ends the stream, and is not told of names (ERR-7)
	ttl     bool // the client knows TTLs (TTL-6)
	// refers: changes of the type wait for the stream's Clusters (ORDER-3).
	refers bool
	// most is how many responses are remembered whose verdicts are owed (Bounds.Unacked).
	most int

	// space is what a response that is being made has for one resource, in bytes (ERR-13).
	space int

	// What identifier made last, and of which identifier of the control plane's.
	plane struct{ of, text string }

	// What the client may hold, and why it may have to be told something.
	holdings
	debts
	marked    bool                 // there are marks in the mailbox
	renewedTo cache.Seq            // renewals are told up to here,
	renewedOf map[string]cache.Seq // and of some resources these ahead of the others
	source    *cache.Source        // where the changes among the debts come from
	excess    []*cache.Source      // traced, and too many to be followed

	// Awaiting an ACK, oldest first.
	unacked   []sent
	lastNonce string
	pushedAt  cache.Seq // of the last nonce without a counter, or a later one
	ackedTo   cache.Seq // the client has accepted everything up to here (NACK-4)
	accepted  string    // the version of what it accepted last
	rejected  *Rejection

	// returning, of Clusters: the client came with versions, and what has become of that is not
	// known yet. unanswered is the name that had no answer when one was last looked for.
	returning  bool
	unanswered cache.ID

	// Additions and changes that wait for Clusters (ORDER-3).
	postpones bool                // they have to just now
	postponed bool                // there are some
	awaited   map[string]struct{} // what was newly asked for and has no answer yet; that does not wait
	// waitedInVain, of Clusters: others have waited in vain for an ACK, and none has come
	// since.
	waitedInVain bool

	// starving is why something that the client waits for could not be had when it was
	// last looked at, or nil (ERR-7).
	starving *statuspb.Status

	// Removals that wait (ORDER-2).
	waitSince  time.Time
	waitFor    []*exchange
	staysSince time.Time // a full-state set lists what is gone
}

type sent struct {
	nonce, version string

	seq cache.Seq
	at  time.Time
	// since is when pushes began to wait for the client; an answer does not
	// prolong it, or a client that asks and never ACKs would starve.
	since time.Time
	// partial: more of the same follows, and accepting this accepts nothing
	// before that is.
	partial bool
	changes bool // it adds or changes resources
	listing listing
}

// Rejection is what a client has NACKed last: changes after From up to To.
type Rejection struct {
	From, To cache.Seq
	Message  string
	// Count is how many resources and removals the response carried, First the first of
	// their names.
	Count int
	First []string
}

// blocked: the client owes an ACK, and pushes wait for it, but not for ever
// (DOWN-DELTA-15).
func (x *exchange) blocked(now time.Time, timeout time.Duration) bool {
	return now.Before(x.overdue(timeout))
}

// overdue is when the wait for an ACK ends; zero if none is owed.
func (x *exchange) overdue(timeout time.Duration) time.Time {
	if len(x.unacked) == 0 {
		return time.Time{}
	}
	return x.unacked[len(x.unacked)-1].since.Add(timeout)
}

// take adds marks to what is owed.
func (x *exchange) take(m fanout.Marks) {
	x.debts.take(m)
	if m.Source.Traced() && !x.source.Fits(m.Source) {
		x.excess = append(x.excess, m.Source)
	}
	x.source = x.source.With(m.Source)
}

// nonce makes the nonce of a response (DOWN-DELTA-3). A push is named after its
// position alone; an answer, or a second response at one position, is told apart
// by a counter of the stream. It ends in how many chunks are left (RECON-16).
func (x *exchange) nonce(seq cache.Seq, answer bool, left int, counter *uint64) string {
	n := x.short + "." + strconv.FormatUint(uint64(seq), 10)
	if answer || seq <= x.pushedAt {
		*counter++
		n += "." + strconv.FormatUint(*counter, 10)
	}
	x.pushedAt = max(x.pushedAt, seq)
	return hop.Part(n, left)
}

// shortName is what a type is called in nonces.
func shortName(t cache.TypeURL) string {
	if name := t.Short(); name != cache.OtherShort {
		return name
	}
	return string(t)
}

// identifier is what the relay calls itself (DOWN-DELTA-19).
func (x *exchange) identifier(instance string) string {
	if of := x.hub.Identifier(); x.plane.text == "" || x.plane.of != of {
		x.plane.of, x.plane.text = of, hop.Identifier(instance, of)
	}
	return x.plane.text
}

// sending notes a response as sent. continued: pushes wait since the one before it.
func (x *exchange) sending(nonce, version string, seq cache.Seq, continued, partial, changes bool, l listing, now time.Time) {
	since := now
	if n := len(x.unacked); continued && n > 0 {
		since = x.unacked[n-1].since
	}
	if n := len(x.unacked); n > 0 && n >= x.most {
		oldest := x.unacked[0]
		if x.unacked = slices.Delete(x.unacked, 0, 1); len(x.unacked) > 0 {
			x.unacked[0].changes = x.unacked[0].changes || oldest.changes // whose ACK stands for both (ORDER-3)
		} else {
			changes = changes || oldest.changes
		}
	}
	x.unacked = append(x.unacked, sent{nonce, version, seq, now, since, partial, changes, l})
	x.lastNonce = nonce
}

// verdict takes in the ACK or NACK of a response; unknown nonces are ignored
// (DOWN-DELTA-6). A response that was accepted settles those before it.
func (x *exchange) verdict(nonce string, e *statuspb.Status, now time.Time) Note {
	note := Note{Type: x.url, Kind: SubscribeRequest}
	i := slices.IndexFunc(x.unacked, func(s sent) bool { return s.nonce == nonce })
	if i < 0 {
		return note
	}
	s := x.unacked[i]
	x.unacked = slices.Delete(x.unacked, 0, i+1)
	note.Nonce = nonce
	if e != nil {
		x.rejected = &Rejection{From: x.ackedTo, To: s.seq, Message: NackMessage(e)}
		x.rejected.Count, x.rejected.First = s.listing.told()
		note.Kind, note.Rejected = NackRequest, x.rejected
		return note
	}
	x.accepted, x.waitedInVain = s.version, false
	if !s.partial {
		x.ackedTo = max(x.ackedTo, s.seq)
	}
	note.Kind, note.After = AckRequest, now.Sub(s.at)
	return note
}

// hasRejected: the client has rejected what changed at a position, so that it has
// nothing whose TTL could be renewed (NACK-4).
func (x *exchange) hasRejected(changed cache.Seq) bool {
	return x.rejected != nil && changed > x.rejected.From && changed <= x.rejected.To
}
