package twin

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
)

// In what order one client is sent changes of several types.

// going is what the client was sent in one go (ORDER-2): the relay hears nothing meanwhile, and no time passes.
type going struct {
	at       time.Time
	round    int  // what is sent in another round is another go
	added    int  // the rank of the latest type of which something was added
	removed  bool // clusters or endpoints were taken away
	answered bool // there were answers among it, not only changes
}

// ranks are the types in the order of what is added.
var ranks = map[string]int{secrets: 1, "CDS": 2, "EDS": 3, "LDS": 4, "FOO": 5}

// ordered judges what a response adds and removes, after what came before it in one go. An answer is sent when it
// is asked for, and what follows it may be old.
func (c *Checker) ordered(who string, cl *clientState, k kind, adds, removes, answer bool) {
	g := &cl.going
	if g.round != c.round || !g.at.Equal(c.now) {
		*g = going{at: c.now, round: c.round}
	}
	if answer {
		g.answered = true
		return
	}
	rank := ranks[k.name]
	switch {
	case !adds:
	case g.removed && k.name == "LDS":
		c.fail("ORDER-2", "%s: a change goes after clusters or endpoints that were taken away", who)
	case rank < g.added && !g.answered:
		c.fail("ORDER-2", "%s: additions go after those of a later type", who)
	}
	if adds {
		g.added = max(g.added, rank)
	}
	if removes && !adds && slices.Contains([]string{"CDS", "EDS"}, k.name) {
		lds := cl.topics["LDS"]
		g.removed = lds == nil || len(lds.unacked) == 0 // else its wait may have run out
	}
}

// hold is what is known of a client's clusters that await their ACK (ORDER-3).
type hold struct {
	changing []string  // nonces of responses that bring something new, and await a verdict
	since    time.Time // since when ACKs of clusters are owed, without a moment of rest in which none was; zero: none is
	brought  bool      // the client came with clusters
}

// rested notes that the relay has nothing left to do for a client. If no clusters await their ACK, nothing waits for
// them, and the next wait is a new one.
func (c *Checker) rested(id int) {
	cl := c.clients[id]
	if cl == nil || !cl.open {
		return
	}
	if t := cl.topics["CDS"]; t == nil || len(t.unacked) == 0 {
		cl.hold.since = time.Time{}
	}
}

// isFirst reports whether a resource is a listener that a client asks for by name, and does not have: an answer and no
// change, also after an error.
func (t *topic) isFirst(k kind, name string, aliases []string) bool {
	_, has := t.holds[name]
	return k.name == "LDS" && !has && t.interest.Named(name, aliases)
}

// isNews reports whether a resource is a change for a client: it has another version, or none.
func (c *Checker) isNews(k kind, t *topic, name string, body *anypb.Any) bool {
	r := c.bodies[string(body.GetValue())]
	return !t.isFirst(k, name, r.aliases) && t.holds[name].label != r.label
}

// heldBack judges a response that may bring something new (ORDER-3).
func (c *Checker) heldBack(who string, cl *clientState, k kind, nonce string, news, answer bool) {
	h := &cl.hold
	switch {
	case k.name == "CDS":
		if h.since.IsZero() {
			h.since = c.now
		}
		if news {
			h.changing = append(h.changing, nonce)
		}
	case k.name != "LDS" || !news || answer:
	case len(h.changing) == 0 || cl.topic("CDS").interest.Empty(): // nothing waits for what it does not want
	case (h.brought || cl.leaves) && c.excuse(unheld):
	case c.now.Before(h.since.Add(warmingHold)):
		c.fail("ORDER-3", "%s: a change is sent while clusters await their ACK", who)
	}
}
