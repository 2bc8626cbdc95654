package session

import (
	"slices"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
)

// A group's streams carry two things that only some of its clients say: the longest way by which clients
// come (NODE-11), and dynamic parameters of the node (NODE-2). A control plane that refuses streams
// because of one would cost all clients of the group their updates. So what has had a stream refused is
// left out of the next one (UP-21). If that lives, the claim is tried once more. If a stream with it is
// refused again, and the next one without it lives, the claim is refused: the caller ends the clients
// that say it. If the stream without it fails just so, nothing is proved.
//
// Forwarded headers are no claim: all clients of a group send the same ones (NODE-13).

// Claim is something that a group's streams carry because of some of its clients. One field is set.
type Claim struct {
	Via  []string   // the relays through which they come
	Node *core.Node // what they say of themselves, of which the dynamic parameters are not in the group's key
}

func (c Claim) equal(o Claim) bool { return slices.Equal(c.Via, o.Via) && proto.Equal(c.Node, o.Node) }

// Refusal is a Claim because of which the control plane refuses streams, and what it says.
type Refusal struct {
	toEdge
	Claim
	Message string
}

// The kinds of claims.
const (
	wayClaim = iota
	nodeClaim
	kinds
)

// claimState is a claim, and how it has fared with the entry in use.
type claimState struct {
	Claim
	is bool // there is something to carry, and to leave out
	// accepted means that a stream with it was answered, or has lasted for trial.
	accepted bool
	strikes  int    // refused streams that carried it
	alone    bool   // the last of them carried no other claim that may be to blame
	message  string // of that
	held     bool   // streams go without it
}

// claims are those of a group.
type claims struct {
	now [kinds]*claimState
	// before are the last other ones that had a stream refused. In a loop of relays a way comes and goes.
	before [kinds]*claimState
	// spare is what streams say of the node when they go without one that has had them refused: the last
	// node that was accepted or, before any was, one that a client has said before. Without a spare
	// nothing is left out: a stream that says less may get what is meant for others.
	spare *core.Node
}

func newClaims(node *core.Node, varies bool) (w claims) {
	w.now[wayClaim] = &claimState{}
	w.now[nodeClaim] = &claimState{Claim: Claim{Node: node}, is: varies && len(node.GetDynamicParameters()) > 0}
	return w
}

// set replaces the claim of a kind.
func (w *claims) set(kind int, claim Claim, is bool) {
	was := w.now[kind]
	if was.equal(claim) {
		return
	}
	next := &claimState{Claim: claim, is: is}
	if b := w.before[kind]; b != nil && b.equal(claim) {
		next = b
	}
	if was.strikes > 0 {
		w.before[kind] = was
	}
	if kind == nodeClaim && w.spare == nil {
		w.spare = was.Node
	}
	w.now[kind] = next
}

// takeBack drops a claim that is refused. If it is made again, it begins anew.
func (w *claims) takeBack(kind int) {
	w.before[kind] = nil
	if w.now[kind] = (&claimState{}); kind == nodeClaim {
		w.now[kind] = &claimState{Claim: Claim{Node: w.spare}, is: len(w.spare.GetDynamicParameters()) > 0}
	}
}

// dispensable reports whether streams can go without a claim.
func (w *claims) dispensable(s *claimState) bool {
	return s.Node == nil || w.spare != nil && !proto.Equal(w.spare, s.Node)
}

// via is the way that streams carry.
func (w *claims) via() []string {
	if s := w.now[wayClaim]; !s.held {
		return s.Via
	}
	return nil
}

// node is the node that streams carry.
func (w *claims) node() *core.Node {
	if s := w.now[nodeClaim]; !s.held {
		return s.Node
	}
	return w.spare
}

// carried are the claims that a stream carries which is opened now.
func (w *claims) carried() (carried []*claimState) {
	for _, s := range w.now {
		if s.is && !s.held {
			carried = append(carried, s)
		}
	}
	return carried
}

// forget begins anew with another entry.
func (w *claims) forget() {
	for i, s := range w.now {
		w.now[i] = &claimState{Claim: s.Claim, is: s.is}
	}
	w.before = [kinds]*claimState{}
}

// strikes judges a stream that the server ended. It reports whether a claim may be to blame.
func (c *Core) strikes(s *slot, message string, now time.Time) bool {
	if s.role != Main || s.answered || s.lasted(now) {
		return false
	}
	var blamed []*claimState
	for _, w := range s.claims {
		if !w.accepted && c.claims.dispensable(w) {
			blamed = append(blamed, w)
		}
		w.accepted = false // it counts from the next time
	}
	for _, w := range blamed {
		w.strikes, w.alone, w.message, w.held = w.strikes+1, len(blamed) == 1, message, true
	}
	if len(blamed) == 0 {
		for _, w := range c.claims.now {
			if w.held { // the stream without it fares no better
				w.strikes, w.held = 0, false
			}
		}
	}
	return len(blamed) > 0
}

// tickClaims judges claims when the main stream has shown that it lives.
func (c *Core) tickClaims(now time.Time) {
	s := &c.main
	if !s.open() {
		return
	}
	lives := s.lasted(now)
	if !lives && !s.answered {
		return
	}
	for _, w := range s.claims {
		if w.accepted, w.strikes = true, 0; w.Node != nil {
			c.claims.spare = w.Node
		}
	}
	if !lives {
		return
	}
	for kind, w := range c.claims.now {
		if !w.held {
			continue
		}
		if w.strikes >= convictAt && w.alone {
			c.claims.takeBack(kind)
			c.config.Node = c.claims.node()
			c.emit(Refusal{Claim: w.Claim, Message: w.message})
			continue
		}
		w.held = false
		c.replace(s, now)
		return // the others wait for their turn
	}
}
