package session

import (
	"iter"
	"slices"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
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
	full  bool // the type's SotW responses are full-state
	own   bool // the type has a group apart from the stream's others (NODE-6)
	// refusal is why it is not served, or nil (NODE-14).
	refusal *refusal
	ends    bool // an outage ends the stream, and is not told of names (ERR-7)
	ttl     bool // the client knows TTLs (TTL-6)
	// refers: changes of the type wait for the stream's Clusters (ORDER-3).
	refers bool
	// most is how many responses are remembered whose verdicts are owed (Bounds.Unacked).
	most int

	// What identifier made last, and of which identifier of the control plane's.
	plane struct{ of, text string }

	// To be told: changes, and what the client wants an answer to.
	marked        bool           // there are marks in the mailbox
	changed       pile[cache.ID] // names whose answer may have changed
	failed        pile[cache.ID] // names with an error to be told of
	members       bool           // the wildcard's set changed
	asked         pile[cache.ID]
	wildcardAsked bool
	refused       pile[string] // names asked for in a way that is not served (NAME-18)

	renewed        pile[cache.ID]  // names of which a TTL was renewed
	membersRenewed bool            // of some in the wildcard's set
	renewedTo      cache.Seq       // renewals are told up to here
	handed         bool            // what was waited for has come: a body (VALID-5), or word of what is from disk
	source         *cache.Source   // where the changes among these come from
	excess         []*cache.Source // traced, and too many to be followed

	// Position.
	told    cache.Seq // the wildcard's changes up to here
	namesTo cache.Seq // changes of subscribed names up to here
	ties    ties      // what it was told for aliases
	// ahead: what an answer told while changes waited for an ACK, and up to where.
	// The changes need not tell it again (DOWN-DELTA-14).
	ahead map[string]ahead
	// warmed: names to be told in full for the sake of their cluster (ORDER-4).
	warmed map[cache.ID]bool

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

// pending: there are changes that a push would tell.
func (x *exchange) pending() bool {
	return x.changed.len() > 0 || len(x.ties.loose) > 0 || x.failed.len() > 0 || x.members || x.handed
}

// tellAhead notes what an answer tells of a name.
func (x *exchange) tellAhead(name, version string, p *part) {
	if p.pushed {
		return // the changes go along
	}
	if x.ahead == nil {
		x.ahead = make(map[string]ahead)
	}
	x.ahead[name] = ahead{version, p.position}
}

// ahead is what a name was told to be, "" for gone, and up to where.
type ahead struct {
	version string
	to      cache.Seq
}

// toldAhead: an answer has told exactly this already.
func (x *exchange) toldAhead(name, version string, at cache.Seq) bool {
	a, ok := x.ahead[name]
	return ok && a.version == version && at <= a.to
}

// leadsTo are the resources to tell of those that answer to a name: if it was
// asked for all of them, else those that changed.
func (x *exchange) leadsTo(name string, a *cache.Answer, asked bool, p *part) iter.Seq[*cache.Resource] {
	return func(yield func(*cache.Resource) bool) {
		tell := func(r *cache.Resource, at cache.Seq) bool {
			if asked {
				x.tellAhead(r.Name, r.Version, p)
				return yield(r)
			}
			if r.Name != name && x.ties.knows(r) || r.Name == name && len(a.More) > 0 && at <= x.namesTo {
				return true
			}
			if x.toldAhead(r.Name, r.Version, at) {
				x.ties.told(r)
				return true
			}
			return yield(r)
		}
		if !tell(a.Resource, a.Seq) {
			return
		}
		for i, r := range a.More {
			if !tell(r, a.MoreSeqs[i]) {
				return
			}
		}
	}
}

// due: there may be something to send at this moment.
func (x *exchange) due() bool {
	return x.pending() || x.asked.len() > 0 || x.wildcardAsked || x.refused.len() > 0 ||
		x.renewed.len() > 0 || x.membersRenewed
}

// take adds marks to what is not told yet.
func (x *exchange) take(m fanout.Marks) {
	x.changed.give(m.Content)
	x.failed.give(m.Errors)
	x.members = x.members || m.Wildcard
	x.renewed.give(m.Renewed)
	x.membersRenewed = x.membersRenewed || m.WildcardRenewed
	x.handed = x.handed || m.Again
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
	return n + "-" + strconv.Itoa(left)
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
		x.plane.of, x.plane.text = of, "xds-relay/"+instance
		if of != "" {
			x.plane.text += " [" + of + "]"
		}
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
		x.unacked = slices.Delete(x.unacked, 0, 1)
	}
	x.unacked = append(x.unacked, sent{nonce, version, seq, now, since, partial, changes, l})
	x.lastNonce = nonce
}

// verdict takes in the ACK or NACK of a response; unknown nonces are ignored
// (DOWN-DELTA-6). A response that was accepted settles those before it.
func (x *exchange) verdict(nonce string, e *statuspb.Status, now time.Time) (v verdict) {
	i := slices.IndexFunc(x.unacked, func(s sent) bool { return s.nonce == nonce })
	if i < 0 {
		return v
	}
	s := x.unacked[i]
	x.unacked = slices.Delete(x.unacked, 0, i+1)
	v.after = now.Sub(s.at)
	if e != nil {
		x.rejected = &Rejection{From: x.ackedTo, To: s.seq, Message: NackMessage(e)}
		x.rejected.Count, x.rejected.First = s.listing.told()
		v.nack = x.rejected
		return v
	}
	x.accepted, x.waitedInVain = s.version, false
	if !s.partial {
		x.ackedTo = max(x.ackedTo, s.seq)
	}
	v.ack = true
	return v
}

// verdict is what a client said of a response.
type verdict struct {
	ack   bool
	nack  *Rejection
	after time.Duration // since it was sent
}
