package session

import (
	"cmp"
	"maps"
	"slices"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// streamState is what one ADS stream has said and still owes, whatever its variant.
// All of it dies with the stream; what survives is in the Hub and in Core.
type streamState struct {
	config *Config
	hub    *fanout.Hub
	alive  *liveness
	writer writer
	// origin is who answers, and restate the whole interest of a lane.
	origin  cache.Origin
	restate restate

	// limit is how long a request may be, and longest how long one was (UP-17).
	limit, longest int
	// nodeSent: a request with the present node is written (UP-2, NODE-2).
	nodeSent bool
	// lanes are what this stream carries now, at most one a type; ordered are the same in the
	// order in which they are asked for, or nil.
	lanes   map[cache.TypeURL]*laneState
	ordered []*laneState
	// used are the types it has ever asked for: the server keeps per-type state for
	// the life of the stream.
	used map[cache.TypeURL]*typeState
	// verdicts are owed, oldest first: one for each response (UP-4).
	verdicts []verdict
	timers   timers
}

// restate is the whole interest of a lane (UP-3), with what is here, whose versions may
// be shown: of what is shown and not announced nothing has changed (RECON-11).
type restate func(lane fanout.Lane, fresh bool) (names []string, here []cache.Held)

// writer composes the requests of one variant: Delta or SotW.
type writer interface {
	// opening asks for all of a lane, or for as much as there is room for.
	opening(l *laneState, names []string, here []cache.Held, r *room) (proto.Message, opening)
	// change asks for more or less of it; l.take says for what.
	change(l *laneState, r *room, now time.Time) proto.Message
	// verdict answers a response.
	verdict(v verdict, now time.Time) proto.Message
}

// typeState is what the server keeps of a type, as far as it matters.
type typeState struct {
	// lane is as which the type is carried: its other lane is not put on this
	// stream (WILD-13).
	lane fanout.Lane
	// legacy: the wildcard was asked for by naming nothing.
	legacy bool
	// shown: the server has shown a resource of it. gaveUp is when its wildcard was
	// given up last (UP-18).
	shown  bool
	spoke  bool // a response of it has come
	gaveUp time.Time
	left   time.Time // when it was taken off the stream last
	sotw   sotwType
}

// verdict is an ACK or NACK that is owed.
type verdict struct {
	typeURL cache.TypeURL
	nonce   string
	nack    string // why, or "" for an ACK
	// version is the last accepted one, of a SotW stream.
	version string
	// notBefore holds a NACK up that says nothing new (NACK-7).
	notBefore time.Time
}

func (v verdict) status() *statuspb.Status {
	if v.nack == "" {
		return nil
	}
	const invalidArgument = 3 // google.rpc.Code
	return &statuspb.Status{Code: invalidArgument, Message: v.nack}
}

// laneState is one lane on one stream.
type laneState struct {
	lane fanout.Lane
	// first: the lane's opening request, which restates everything, is not
	// written yet (UP-3).
	first bool
	// gathers is until when changes of interest are left to gather, to be written as one
	// request: from the last one written, and before the first (UP-6).
	gathers time.Time
	// held: it waits until suspects before it have been tried (suspect.go).
	held bool
	// askedAt is when the opening request was written; answered: a response of
	// the type has come since.
	askedAt  time.Time
	answered bool
	// question numbers it, and lookAt is when to look whether it has gone unanswered for
	// too long (silence.go).
	question uint64
	lookAt   time.Time
	// mapped: the opening request showed versions.
	mapped bool
	// sent are the names subscribed on this stream, with the time.
	sent map[string]time.Time
	// want and drop are changes not written yet. A name in both is dropped
	// first, then asked for again (UP-8).
	want, drop pending
	// again are names asked for once more for the sake of their bodies, with the
	// time at which that was written, or zero (VALID-5); insistAt is when to look at them, at the
	// latest when the first has gone unanswered for too long; zero: none is written.
	again    map[string]time.Time
	insistAt time.Time
	echo     echo // of the versions that went with the opening request (RECON-13)
	// unanswered is what is asked for again for want of an answer (UP-19).
	unanswered unanswered
	// insisted are those of again that were given up and begun again.
	insisted insisted

	settle settleState
}

// carry puts a lane on the stream.
func (s *streamState) carry(lane fanout.Lane, held bool, now time.Time) {
	l := &laneState{
		lane: lane, first: true, gathers: now.Add(s.config.Coalesce), held: held,
		sent: make(map[string]time.Time),
		want: newPending(),
		drop: newPending(),

		again: make(map[string]time.Time),
	}
	l.unanswered.on = !lane.Wildcard && !s.origin.SotW
	s.lanes[lane.Type], s.ordered = l, nil
}

// maxUsed is how many types a stream remembers that it has asked for, before it forgets those
// that clients have invented.
var maxUsed = 1000

// drop takes a type off the stream. Of types that nobody wants, and of which the server has shown
// nothing, nor can have anything on its way, it need not remember what they were asked for as.
func (s *streamState) drop(t cache.TypeURL, now time.Time) {
	delete(s.lanes, t)
	s.ordered = nil
	if u := s.used[t]; u != nil {
		u.left = now
	}
	if len(s.used) > maxUsed {
		maps.DeleteFunc(s.used, func(t cache.TypeURL, u *typeState) bool {
			return s.lanes[t] == nil && !u.shown && !now.Before(u.left.Add(s.config.SettleCap))
		})
	}
}

// lane is as which the stream carries a type, or has carried it.
func (s *streamState) lane(t cache.TypeURL) (lane fanout.Lane, ok bool) {
	if l := s.lanes[t]; l != nil {
		return l.lane, true
	}
	if u := s.used[t]; u != nil {
		return u.lane, true
	}
	return fanout.Lane{}, false
}

// takes: the stream can carry a lane. A server keeps per-type state for the life of a
// stream, so that a type never changes its lane on one.
func (s *streamState) takes(lane fanout.Lane, now time.Time) bool {
	as, carried := s.lane(lane.Type)
	if !carried || as != lane || !lane.Wildcard {
		return !carried || as == lane
	}
	l := s.lanes[lane.Type]
	return l != nil || s.takesBack(nil, lane, now)
}

// takesBack: a wildcard that was given up can be asked for again. The server may believe
// it delivered, if it has shown anything of the type; and an answer that is still on its
// way would complete the new set (UP-18). A SotW wildcard was never given up in words that
// every server understands.
func (s *streamState) takesBack(l *laneState, lane fanout.Lane, now time.Time) bool {
	u := s.used[lane.Type]
	giving := l != nil && l.drop.len() > 0
	return !s.origin.SotW && !giving && !u.shown && !now.Before(u.gaveUp.Add(s.config.SettleCap))
}

// returns: a wildcard is wanted that was given up on this stream, or is being given up.
func (l *laneState) returns(i fanout.Interest) bool {
	return l.lane.Wildcard && !l.first && len(i.Want) > 0 && !l.subscribed(fanout.Wildcard)
}

// change takes in what the Hub says of a lane's interest.
func (s *streamState) change(l *laneState, i fanout.Interest) {
	if l.first {
		return // the opening request will ask for everything
	}
	if s.origin.SotW && l.lane.Wildcard {
		if len(i.Drop) > 0 {
			clear(l.sent) // see takes
		}
		return
	}
	back := make(map[time.Time][]string) // by when they were asked for
	for _, name := range i.Want {
		if l.subscribed(name) {
			back[l.sent[name]] = append(back[l.sent[name]], name)
		} else {
			l.want.add(name)
		}
	}
	l.unanswered.returns(l, back)
	for _, name := range i.Again {
		if !s.origin.SotW {
			l.want.add(name)
			l.again[name] = time.Time{}
		} else if !s.hub.Properties(l.lane.Type).FullState { // those come with every response
			l.drop.add(name) // a repeated name is not answered
			l.want.add(name)
		}
	}
	for _, name := range i.Anew {
		l.unanswered.begin(name)
	}
	l.unanswered.forget(i.Leave)
	for _, name := range i.Leave { // the server need not know
		l.want.remove(name)
		delete(l.again, name)
		delete(l.sent, name)
	}
	unsubscribed := l.unanswered.forget(i.Drop)
	for _, name := range i.Drop {
		l.want.remove(name)
		delete(l.again, name)
		if _, already := unsubscribed[name]; already {
			delete(l.sent, name)
		} else if _, sent := l.sent[name]; sent {
			l.drop.add(name)
		}
	}
}

// changed: there are changes to be written.
func (l *laneState) changed() bool { return !l.first && l.drop.len()+l.want.len() > 0 }

// subscribed: a name is, and is not about to be given up.
func (l *laneState) subscribed(name string) bool {
	_, sent := l.sent[name]
	return sent && !l.drop.has(name)
}

// leaves: a name is given up, but the server may not know it yet.
func (l *laneState) leaves(name string) bool {
	return l != nil && !l.lane.Wildcard && !l.subscribed(name)
}

// idle: nothing is subscribed, nor about to be.
func (l *laneState) idle() bool { return !l.first && !l.changed() && len(l.sent) == 0 }

// next is the next request to write, or nil. It is computed now, from what is
// wanted now (UP-6).
func (s *streamState) next(node *core.Node, now time.Time) proto.Message {
	if s.nodeSent && !s.config.SendNodeAlways {
		node = nil
	}
	req := s.nextVerdict(now)
	if req == nil {
		req = s.nextInterest(node, now)
	}
	switch req := req.(type) {
	case nil:
		return nil
	case *discovery.DeltaDiscoveryRequest:
		req.Node = node
	case *discovery.DiscoveryRequest:
		req.Node = node
	}
	s.nodeSent, s.longest = true, max(s.longest, proto.Size(req))
	return req
}

// nextVerdict is the next ACK or NACK, in order within a type.
func (s *streamState) nextVerdict(now time.Time) proto.Message {
	var waiting map[cache.TypeURL]bool
	for i, v := range s.verdicts {
		l := s.lanes[v.typeURL]
		switch {
		case waiting[v.typeURL]:
		case v.notBefore.After(now) && (l == nil || !l.changed()):
			if waiting == nil {
				waiting = make(map[cache.TypeURL]bool)
			}
			waiting[v.typeURL] = true
		default:
			s.verdicts = slices.Delete(s.verdicts, i, i+1)
			return s.writer.verdict(v, now)
		}
	}
	return nil
}

// nextInterest is a change of subscriptions, in a request with the node if there is one.
func (s *streamState) nextInterest(node *core.Node, now time.Time) proto.Message {
	waiting := false // mostly there is none, and the lanes need not be put in order
	for _, l := range s.lanes {
		waiting = waiting || l.first && !l.gathers.After(now) || l.changed() || l.unanswered.pair != nil
	}
	if !waiting {
		return nil
	}
	for _, l := range s.inOrder() {
		switch {
		case l.held, l.first && l.gathers.After(now):
		case l.first:
			if req := s.opening(l, node, now); req != nil {
				return req
			}
		case l.changed():
			return s.writer.change(l, s.room(l.lane.Type, node), now)
		case l.unanswered.pair != nil:
			if req := s.askAgain(l, s.room(l.lane.Type, node), now); req != nil {
				return req
			}
		}
	}
	return nil
}

// opening restates a lane's whole interest, or the first part of it (UP-17).
func (s *streamState) opening(l *laneState, node *core.Node, now time.Time) proto.Message {
	fresh := s.used[l.lane.Type] == nil
	names, here := s.restate(l.lane, fresh)
	if len(names) == 0 {
		return nil // given up meanwhile; its lane goes with the next change
	}
	if fresh {
		s.used[l.lane.Type] = &typeState{lane: l.lane, legacy: l.lane.Wildcard && s.legacy(l.lane.Type)}
	} else {
		s.used[l.lane.Type].legacy = false // that works only in a type's first request
	}
	req, o := s.writer.opening(l, names, here, s.room(l.lane.Type, node))
	l.first, l.askedAt = false, now
	if l.mapped = len(o.shown) > 0; l.mapped {
		l.echo = echo{left: maps.Clone(o.shown)}
	}
	s.hub.On(l.lane).Doubt(o.hidden) // RECON-12 is about these
	s.subscribed(l, o.listed, now)
	l.question, l.lookAt = s.alive.asked, now.Add(s.config.Missing)
	for _, name := range o.rest {
		l.want.add(name)
	}
	if !l.lane.Wildcard && s.hub.Of(l.lane.Type).Doubtful() {
		l.settle.beginWarm()
	}
	return req
}

// legacy: the wildcard is to be asked for by naming nothing (WILD-10).
func (s *streamState) legacy(t cache.TypeURL) bool {
	switch s.config.WildcardForm {
	case WildcardExplicit:
		return false
	case WildcardLegacy:
		return true
	}
	return s.hub.Properties(t).EmptyIsWildcard
}

// take is what is to be asked for, and given up, with one request. What is given up goes
// first, and a name in both is asked for next time (UP-8). What it returns counts as
// written; what there is no room for goes with the requests that follow (UP-17).
func (s *streamState) take(l *laneState, r *room, now time.Time) (subscribe, unsubscribe []string) {
	unsubscribe = l.drop.take(r, func(string) bool { return false })
	for _, name := range unsubscribe {
		delete(l.sent, name)
	}
	if l.drop.len() == 0 {
		subscribe = l.want.take(r, func(name string) bool {
			_, given := slices.BinarySearch(unsubscribe, name)
			return given
		})
	}
	for _, name := range subscribe {
		if _, again := l.again[name]; again {
			l.again[name] = now
			l.insistAt = earlier(l.insistAt, now.Add(insistAfter))
		}
	}
	if l.lane.Wildcard && len(unsubscribe) > 0 {
		l.settle = settleState{} // what comes until it is asked for again completes nothing (RECON-16)
		s.used[l.lane.Type].gaveUp = now
	}
	s.subscribed(l, subscribe, now)
	return subscribe, unsubscribe
}

// subscribed notes names as written, and starts their timers (MISS-3).
func (s *streamState) subscribed(l *laneState, names []string, now time.Time) {
	l.gathers = now.Add(s.config.Coalesce)
	for _, name := range names {
		if _, again := l.sent[name]; l.lane.Wildcard && !again {
			l.settle.begin()
		}
		l.sent[name] = now
	}
	if len(names) == 0 {
		return
	}
	question := s.alive.question(now)
	doubtful := s.hub.On(l.lane).Asked(names)
	if l.lane.Wildcard {
		return
	}
	asked := nameTimer{now, question, l, names}
	s.timers.missing = append(s.timers.missing, asked)
	if l.unanswered.on {
		l.unanswered.silent = append(l.unanswered.silent, asked)
	}
	if !s.origin.SotW && len(doubtful) > 0 {
		// Of an opening request with versions these are what it does not list: what is
		// not kept, and what a stream before this one has not got round to.
		s.timers.overdue = append(s.timers.overdue, overdueTimer{nameTimer{written: now, lane: l, names: doubtful}, now.Add(s.config.MissingExplicit)})
	}
}

// deadline is when something is due, or zero. missing is for how long a name may be without an answer.
func (s *streamState) deadline(missing time.Duration, now time.Time) time.Time {
	at := s.timers.deadline(missing, s.alive, now)
	for _, v := range s.verdicts {
		at = earlier(at, toCome(v.notBefore, now))
	}
	for _, l := range s.lanes {
		at = earlier(at, l.settle.deadline(), l.insistAt, l.unanswered.deadline(s.config.patience()), l.insisted.lookAt)
		if l.first && !l.held {
			at = earlier(at, toCome(l.gathers, now))
		}
		if !l.held && !l.first && !l.answered && now.Sub(l.askedAt) < trial {
			at = earlier(at, l.askedAt.Add(trial))
		}
	}
	return at
}

// inOrder are the lanes in the order in which they are asked for: what others
// refer to first, so that an answer is of use when it comes.
func (s *streamState) inOrder() []*laneState {
	if s.ordered == nil {
		s.ordered = slices.SortedFunc(maps.Values(s.lanes), func(a, b *laneState) int { return laneOrder(a.lane, b.lane) })
	}
	return s.ordered
}

func laneOrder(a, b fanout.Lane) int {
	return cmp.Or(a.Type.Rank()-b.Type.Rank(), cmp.Compare(a.Type, b.Type))
}
