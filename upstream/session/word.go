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
// left out of the next one (UP-21). If that lives, the word is tried once more. If a stream with it is
// refused again, and the next one without it lives, the word is refused: the caller ends the clients
// that say it. If the stream without it fails just so, nothing is proved.
//
// Forwarded headers are no word: all clients of a group send the same ones (NODE-13).

// Word is something that a group's streams carry because of some of its clients. One field is set.
type Word struct {
	Via  []string   // the relays through which they come
	Node *core.Node // what they say of themselves, of which the dynamic parameters are not in the group's key
}

// Refusal is a Word because of which the control plane refuses streams, and what it says.
type Refusal struct {
	Word
	Message string
}

// The kinds of words.
const (
	wayWord = iota
	nodeWord
	kinds
)

// said is a word, and how it has fared with the entry in use.
type said struct {
	Word
	is bool // there is something to carry, and to leave out
	// accepted means that a stream with it was answered, or has lasted for trial.
	accepted bool
	strikes  int    // refused streams that carried it
	alone    bool   // the last of them carried no other word that may be to blame
	message  string // of that
	held     bool   // streams go without it
}

// words are those of a group.
type words struct {
	now [kinds]*said
	// before are the last other ones that had a stream refused. In a loop of relays a way comes and goes.
	before [kinds]*said
	// spare is what streams say of the node when they go without one that has had them refused: the last
	// node that was accepted or, before any was, one that a client has said before. Without a spare
	// nothing is left out: a stream that says less may get what is meant for others.
	spare *core.Node
}

func newWords(node *core.Node, varies bool) (w words) {
	w.now[wayWord] = &said{}
	w.now[nodeWord] = &said{Word: Word{Node: node}, is: varies && len(node.GetDynamicParameters()) > 0}
	return w
}

// say replaces a word.
func (w *words) say(kind int, word Word, is bool) {
	was := w.now[kind]
	if slices.Equal(was.Via, word.Via) && proto.Equal(was.Node, word.Node) {
		return
	}
	next := &said{Word: word, is: is}
	if b := w.before[kind]; b != nil && slices.Equal(b.Via, word.Via) && proto.Equal(b.Node, word.Node) {
		next = b
	}
	if was.strikes > 0 {
		w.before[kind] = was
	}
	if kind == nodeWord && w.spare == nil {
		w.spare = was.Node
	}
	w.now[kind] = next
}

// takeBack drops a word that is refused. If it is said again, it begins anew.
func (w *words) takeBack(kind int) {
	w.before[kind] = nil
	if w.now[kind] = (&said{}); kind == nodeWord {
		w.now[kind] = &said{Word: Word{Node: w.spare}, is: len(w.spare.GetDynamicParameters()) > 0}
	}
}

// dispensable reports whether streams can go without a word.
func (w *words) dispensable(s *said) bool {
	return s.Node == nil || w.spare != nil && !proto.Equal(w.spare, s.Node)
}

// via is the way that streams carry.
func (w *words) via() []string {
	if s := w.now[wayWord]; !s.held {
		return s.Via
	}
	return nil
}

// node is the node that streams carry.
func (w *words) node() *core.Node {
	if s := w.now[nodeWord]; !s.held {
		return s.Node
	}
	return w.spare
}

// carried are the words that a stream carries which is opened now.
func (w *words) carried() (carried []*said) {
	for _, s := range w.now {
		if s.is && !s.held {
			carried = append(carried, s)
		}
	}
	return carried
}

// forget begins anew with another entry.
func (w *words) forget() {
	for i, s := range w.now {
		w.now[i] = &said{Word: s.Word, is: s.is}
	}
	w.before = [kinds]*said{}
}

// strikes judges a stream that the server ended. It reports whether a word may be to blame.
func (c *Core) strikes(s *slot, message string, now time.Time) bool {
	if s.role != Main || s.answered || now.Sub(s.opened) >= trial {
		return false
	}
	var blamed []*said
	for _, w := range s.words {
		if !w.accepted && c.words.dispensable(w) {
			blamed = append(blamed, w)
		}
		w.accepted = false // it counts from the next time
	}
	for _, w := range blamed {
		w.strikes, w.alone, w.message, w.held = w.strikes+1, len(blamed) == 1, message, true
	}
	if len(blamed) == 0 {
		for _, w := range c.words.now {
			if w.held { // the stream without it fares no better
				w.strikes, w.held = 0, false
			}
		}
	}
	return len(blamed) > 0
}

// tickWords judges words when the main stream has shown that it lives.
func (c *Core) tickWords(now time.Time) {
	s := &c.main
	lives := s.open() && now.Sub(s.opened) >= trial
	if !lives && !(s.open() && s.answered) {
		return
	}
	for _, w := range s.words {
		if w.accepted, w.strikes = true, 0; w.Node != nil {
			c.words.spare = w.Node
		}
	}
	for kind, w := range c.words.now {
		if !lives || !w.held {
			continue
		}
		if w.strikes >= convictAt && w.alone {
			c.words.takeBack(kind)
			c.config.Node = c.words.node()
			c.effects = append(c.effects, Effect{Refused: &Refusal{w.Word, w.message}, Entry: c.entry().Name})
			continue
		}
		w.held = false
		c.replace(s, now)
		return // the others wait for their turn
	}
}
