package relay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/internal/hop"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// Words are what a group's streams carry because of some of its clients: the longest way by which clients
// come (NODE-11), and dynamic parameters that are not in the group's key (NODE-2). What the control plane
// refuses is taken back from the clients that said it, and from nobody else (UP-21). It is not safe for
// concurrent use.
type Words struct {
	ways     hop.Ways
	speakers map[*Speaker]struct{}
	turn     uint64 // counts what was said
	refused  []refusedWord
}

// Speaker is a client that has said something; nil: it has not.
type Speaker struct {
	client session.Peer
	way    []string
	node   *core.Node // nil: it is the same for the whole group
	said   uint64
}

// refusedWord is a word that the control plane has refused, which nobody can say until a time.
type refusedWord struct {
	upsession.Refusal
	until time.Time
}

const (
	// refusedFor is how long a word is refused before it may be tried again.
	refusedFor = time.Minute
	// maxRefused bounds the words that are remembered as refused; the oldest go first.
	maxRefused = 64
)

// NewWords returns those of a group without clients.
func NewWords() *Words {
	return &Words{ways: make(hop.Ways), speakers: make(map[*Speaker]struct{})}
}

// Join notes what a client says, or returns why it cannot. node is nil where it is the same for all of
// the group.
func (w *Words) Join(client session.Peer, node *core.Node, now time.Time) (*Speaker, *session.End) {
	way := client.Way()
	if end := w.refuses(way, node, now); end != nil {
		return nil, end
	}
	if len(way) == 0 && node == nil {
		return nil, nil
	}
	w.turn++
	s := &Speaker{client, way, node, w.turn}
	w.speakers[s] = struct{}{}
	w.ways.Join(way)
	return s, nil
}

// Leave notes that a client has gone. What it has said of its node stays until another one says
// something.
func (w *Words) Leave(s *Speaker) {
	if s == nil {
		return
	}
	w.ways.Leave(s.way)
	delete(w.speakers, s)
}

// Renew notes that a client says another node, or returns why it cannot.
func (w *Words) Renew(s *Speaker, node *core.Node, now time.Time) *session.End {
	if end := w.refuses(nil, node, now); end != nil {
		return end
	}
	w.turn++
	s.node, s.said = node, w.turn
	return nil
}

// Via is the longest way.
func (w *Words) Via() []string { return w.ways.Longest() }

// Refuse takes a word back. It returns the clients that say it, one for each stream, which are to be ended
// and say it no more, and the node that another client has said last, or nil.
func (w *Words) Refuse(r upsession.Refusal, now time.Time) (ended []session.Peer, node *core.Node) {
	if len(w.refused) == maxRefused {
		w.refused = slices.Delete(w.refused, 0, 1)
	}
	w.refused = append(w.refused, refusedWord{r, now.Add(refusedFor)})
	var last *Speaker
	streams := make(map[any]bool)
	for s := range w.speakers {
		switch {
		case same(r.Word, s.way, s.node):
			if !streams[s.client.Stream] {
				ended = append(ended, s.client)
			}
			streams[s.client.Stream] = s.client.Stream != nil
			w.retract(s, r.Word)
		case s.node != nil && (last == nil || last.said < s.said):
			last = s
		}
	}
	if last != nil {
		node = last.node
	}
	return ended, node
}

// retract has a client not say a word any more.
func (w *Words) retract(s *Speaker, word upsession.Word) {
	if word.Node != nil {
		s.node = nil
		return
	}
	w.ways.Leave(s.way)
	s.way = nil
}

// same reports whether one of these is the word.
func same(word upsession.Word, way []string, node *core.Node) bool {
	if word.Node == nil {
		return slices.Equal(word.Via, way)
	}
	return node != nil && proto.Equal(word.Node, node)
}

func (w *Words) refuses(way []string, node *core.Node, now time.Time) *session.End {
	w.refused = slices.DeleteFunc(w.refused, func(r refusedWord) bool { return !r.until.After(now) })
	for _, r := range w.refused {
		if same(r.Word, way, node) {
			return Refused(r.Refusal)
		}
	}
	return nil
}

// Refused is how the clients learn of it that say a refused word.
func Refused(r upsession.Refusal) *session.End {
	because := "the dynamic_parameters of their node"
	if r.Node == nil {
		because = fmt.Sprintf("the relays through which they come (%.1000s)", strings.Join(r.Via, ", "))
	}
	return &session.End{Reason: session.RefusedUpstream, Message: fmt.Sprintf("the control plane refuses streams of these clients because of %s: %s", because, r.Message)}
}

// refused takes back from some clients of a group what the control plane refuses, and ends them.
func (g *groups) refused(gr *group, r upsession.Refusal) {
	g.mu.Lock()
	ended, node := gr.words.Refuse(r, time.Now())
	if r.Node != nil {
		gr.node = node // its streams go on without the refused one
	}
	if r.Node != nil && node != nil {
		gr.client.SetNode(node)
	}
	gr.tellWay()
	g.mu.Unlock()
	end := Refused(r)
	g.log.Warn("the control plane refuses the streams of a group because of what some of its clients say of themselves; they are ended, and the others go on without",
		"group", gr.hub.Name(), "via", hop.Value(r.Via), "node", r.Node.GetId(), "clients", len(ended), "err", r.Message)
	for _, client := range ended {
		if client.End != nil {
			client.End(end)
		}
	}
}

// renew has a group say another node upstream, which a client of it says of itself.
func (g *groups) renew(gr *group, s *Speaker, node *core.Node) {
	g.mu.Lock()
	end := gr.words.Renew(s, node, time.Now())
	if end == nil {
		gr.say(node)
	}
	g.mu.Unlock()
	if end != nil && s.client.End != nil {
		s.client.End(end)
	}
}
