package session

import (
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

// streamState is what one ADS stream, Delta or SotW, has subscribed and still has to send.
// It ends with the stream; whatever outlives a stream is in the Hub and in Core.
type streamState struct {
	config *Config
	hub    *fanout.Hub
	alive  *liveness
	writer writer
	// origin is the control plane that answers; restate returns the whole interest of a lane.
	origin  cache.Origin
	restate restate

	// limit bounds the length of a request, and longest is the longest one written (UP-17).
	limit, longest int
	// longestOf is the type of that request, and taken the longest one after which a response of its
	// type came.
	longestOf cache.TypeURL
	taken     int
	// nodeSent means that a request with the present node was written (UP-2, NODE-2).
	nodeSent bool
	// lanes are the lanes that the stream carries now, at most one of each type. ordered has
	// them in the order in which they are asked for; nil means that it must be computed.
	lanes   map[cache.TypeURL]*laneState
	ordered []*laneState
	// nameLists are the lists of names that SotW requests have; they outlive the stream. nil: nothing is
	// left out of what is asked for.
	nameLists map[fanout.Lane]*nameList
	// unused are lanes that may not be needed any more (release).
	unused map[*laneState]bool
	awake  awake
	// used has the types that the stream has asked for, now or before: the server keeps
	// state for each of them while the stream lives.
	used map[cache.TypeURL]*typeState
	// acks are the pending ACKs and NACKs, oldest first, one for each response (UP-4).
	acks   []ack
	taking bool // in a response: its ACK goes before what clients ask for because of it
	timers timers
}

// restate returns the whole interest of a lane (UP-3), and the resources in the Hub whose versions
// may be shown. If the server does not announce one of those, it is unchanged (RECON-11).
type restate func(lane fanout.Lane, fresh bool) (names []string, here []cache.Held)

// writer composes the requests of one variant: Delta or SotW.
type writer interface {
	// opening asks for a whole lane, or for as many of its names as there is room for.
	opening(l *laneState, names []string, here []cache.Held, r *budget) (proto.Message, opening)
	// change writes the changes that l.take returns.
	change(l *laneState, r *budget, now time.Time) proto.Message
	// acknowledge acknowledges or rejects a response.
	acknowledge(v ack, now time.Time) proto.Message
}

// typeState is the state that the server keeps for a type while the stream lives.
type typeState struct {
	// lane is the lane of the type that the stream carries, or has carried. It never
	// carries the other one (WILD-13).
	lane fanout.Lane
	// legacy means that the wildcard was asked for by a request without names.
	legacy bool
	// delivered means that the server has sent a resource of the type. gaveUp is when the
	// wildcard was last unsubscribed (UP-18).
	delivered bool
	spoke     bool // a response of the type has come
	gaveUp    time.Time
	left      time.Time // when the type was last taken off the stream
	sotw      sotwType
}

// ack is a pending ACK or NACK.
type ack struct {
	typeURL cache.TypeURL
	nonce   string
	nack    string // the reason for a NACK; empty for an ACK
	// version is the last accepted version, on a SotW stream.
	version string
	// notBefore delays a NACK that repeats an earlier one (NACK-7).
	notBefore time.Time
}

func (v ack) status() *statuspb.Status {
	if v.nack == "" {
		return nil
	}
	const invalidArgument = 3 // google.rpc.Code
	return &statuspb.Status{Code: invalidArgument, Message: v.nack}
}

func (s *streamState) carry(lane fanout.Lane, held bool) {
	l := &laneState{
		lane: lane, held: held,
		sent: make(map[string]time.Time),
		want: newPending(),
		drop: newPending(),

		restart: make(map[string]struct{}),
	}
	l.unanswered.on = !lane.Wildcard && !s.origin.SotW
	s.lanes[lane.Type], s.ordered = l, nil
	if held {
		s.awake.held = true
	}
	s.wake(l)
}

// maxUsed is the number of used types above which a stream forgets those that the server has
// sent nothing of: clients can invent types.
var maxUsed = 1000

// drop takes a type off the stream. If there are many, the stream forgets the types that nobody
// wants, if the server has sent nothing of them and has had the time to answer.
func (s *streamState) drop(t cache.TypeURL, now time.Time) {
	s.awake.sleeps(s.lanes[t])
	delete(s.lanes, t)
	s.ordered = nil
	if u := s.used[t]; u != nil {
		u.left = now
	}
	if len(s.used) > maxUsed && !s.taking { // it may be of such a type, and is still to be acknowledged
		maps.DeleteFunc(s.used, func(t cache.TypeURL, u *typeState) bool {
			return s.lanes[t] == nil && !u.delivered && !now.Before(u.left.Add(s.config.SettleCap))
		})
	}
}

// lane is the lane of a type that the stream carries, or has carried.
func (s *streamState) lane(t cache.TypeURL) (lane fanout.Lane, ok bool) {
	if l := s.lanes[t]; l != nil {
		return l.lane, true
	}
	if u := s.used[t]; u != nil {
		return u.lane, true
	}
	return fanout.Lane{}, false
}

// takes reports whether the stream can carry a lane that it does not carry now. A type never changes
// its lane on a stream, since the server keeps state for the type while the stream lives.
func (s *streamState) takes(lane fanout.Lane, now time.Time) bool {
	switch as, used := s.lane(lane.Type); {
	case !used:
		return true
	case as != lane:
		return false
	}
	return !lane.Wildcard || s.takesBack(lane, now)
}

// takesBack reports whether a wildcard that was unsubscribed can be subscribed again on the
// stream. It cannot if the server has sent a resource of the type, and may believe the set
// delivered, or if a late answer could still complete the new set (UP-18). Not every SotW
// server understands that a wildcard is given up, so there it never can.
func (s *streamState) takesBack(lane fanout.Lane, now time.Time) bool {
	l, u := s.lanes[lane.Type], s.used[lane.Type]
	if s.origin.SotW || u.delivered {
		return false
	}
	giving := l != nil && l.drop.len() > 0 // the unsubscribe is not written yet
	return !giving && !now.Before(u.gaveUp.Add(s.config.SettleCap))
}

// change applies a change of a lane's interest.
func (s *streamState) change(l *laneState, i fanout.Interest, now time.Time) {
	defer s.wake(l)
	l.more = i.More
	if len(i.Drop)+len(i.Leave) > 0 {
		s.unused[l] = true
	}
	if !l.asked() {
		return // the opening request will ask for everything
	}
	if s.origin.SotW && l.lane.Wildcard {
		if len(i.Drop) > 0 {
			clear(l.sent) // the stream does not take it back (takesBack)
		}
		return
	}
	want, list := i.Want, s.nameListOf(l.lane)
	if list != nil {
		want = list.change(i.Want, i.Drop)
	}
	if s.origin.SotW { // it answers no name that is repeated, so its silence counts from now
		s.subscribed(l, slices.DeleteFunc(i.Again, func(name string) bool { return !l.subscribed(name) }), now)
	} else {
		for _, name := range i.Again {
			l.restart[name] = struct{}{}
		}
	}
	for _, name := range want {
		if l.subscribed(name) {
			l.comesBack(name)
		} else {
			l.want.add(name)
		}
	}
	for _, name := range i.Leave { // these are not unsubscribed
		l.forget(name)
		l.drop.remove(name)
		delete(l.sent, name)
	}
	for _, name := range i.Drop {
		l.forget(name)
		if _, sent := l.sent[name]; sent {
			l.drop.add(name)
		}
	}
}

// part is how many names change at a time; 0: all, since each SotW request lists everything again.
func (s *streamState) part() int {
	if s.origin.SotW {
		return 0
	}
	return s.config.bounds().Part
}

// next is the next request to write, or nil. It is made from what is wanted now (UP-6).
func (s *streamState) next(node *core.Node, now time.Time) proto.Message {
	if s.nodeSent && !s.config.SendNodeAlways {
		node = nil
	}
	req := s.nextAck(now)
	if req == nil && !s.taking { // UP-4
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
	s.nodeSent = true
	if size := proto.Size(req); size > s.longest {
		s.longest, s.longestOf = size, cache.TypeURL(req.(interface{ GetTypeUrl() string }).GetTypeUrl())
	}
	return req
}

// nextAck is the next ACK or NACK, or nil. Those of one type keep their order.
func (s *streamState) nextAck(now time.Time) proto.Message {
	waiting := make(map[cache.TypeURL]bool)
	for i, v := range s.acks {
		l := s.lanes[v.typeURL]
		switch {
		case waiting[v.typeURL]:
		case v.notBefore.After(now) && !l.changed():
			waiting[v.typeURL] = true
		default:
			s.acks = slices.Delete(s.acks, i, i+1)
			return s.writer.acknowledge(v, now)
		}
	}
	return nil
}

// nextInterest is the next request that changes subscriptions, or nil. node is the node that
// it will carry, or nil.
func (s *streamState) nextInterest(node *core.Node, now time.Time) proto.Message {
	for _, l := range s.awake.writable.inOrder() {
		switch {
		case !s.awake.writable.lanes[l], l.held:
		case !l.asked():
			if req := s.opening(l, node, now); req != nil {
				s.wake(l)
				return req
			}
		case l.changed():
			s.wake(l)
			return s.writer.change(l, s.budget(l.lane.Type, node), now)
		default:
			s.awake.writable.remove(l)
		}
	}
	return nil
}

// opening restates a lane's whole interest, or the first part of it (UP-17).
func (s *streamState) opening(l *laneState, node *core.Node, now time.Time) proto.Message {
	fresh := s.used[l.lane.Type] == nil
	names, here := s.restate(l.lane, fresh)
	if len(names) == 0 {
		return nil // given up meanwhile; the next change takes the lane off the stream
	}
	if list := s.nameListOf(l.lane); list != nil {
		names = list.begin(names, s.roomFor(l.lane.Type))
	}
	if fresh {
		s.used[l.lane.Type] = &typeState{lane: l.lane, legacy: l.lane.Wildcard && s.legacy(l.lane.Type)}
	} else {
		s.used[l.lane.Type].legacy = false // only the first request of a type can be without names
	}
	req, o := s.writer.opening(l, names, here, s.budget(l.lane.Type, node))
	l.askedAt = now
	if l.mapped = len(o.shown) > 0; l.mapped {
		if l.lane.Wildcard {
			s.awake.shown[l] = true
		}
		l.echo = echo{unmentioned: o.known}
	}
	s.hub.On(l.lane).Unannounce(o.hidden) // silence does not confirm them (RECON-12)
	s.subscribed(l, o.listed, now)
	l.question, l.lookAt = s.alive.asked, now.Add(s.config.Missing)
	for _, name := range o.rest {
		l.want.add(name)
	}
	return req
}

// legacy reports whether a type's wildcard is asked for by a request without names (WILD-10).
func (s *streamState) legacy(t cache.TypeURL) bool {
	if s.config.WildcardForm == WildcardAuto {
		return s.hub.Properties(t).EmptyIsWildcard
	}
	return s.config.WildcardForm == WildcardLegacy
}

// take returns the names that the next request subscribes and unsubscribes, and counts them
// as written. Unsubscribes go first, and a name in both is subscribed by a later request
// (UP-8), as are names for which there is no room (UP-17).
func (s *streamState) take(l *laneState, r *budget, now time.Time) (subscribe, unsubscribe []string) {
	unsubscribe = l.drop.take(r, func(string) bool { return false })
	for _, name := range unsubscribe {
		delete(l.sent, name)
	}
	if len(unsubscribe) > 0 {
		s.unused[l] = true
	}
	if l.drop.len() == 0 {
		subscribe = l.want.take(r, func(name string) bool {
			_, given := slices.BinarySearch(unsubscribe, name)
			return given
		})
	}
	if l.lane.Wildcard && len(unsubscribe) > 0 {
		l.settle = settleState{} // no response completes the set before the next subscribe (RECON-16)
		s.used[l.lane.Type].gaveUp = now
	}
	s.subscribed(l, subscribe, now)
	return subscribe, unsubscribe
}

// subscribed notes names as written, and starts their timers (MISS-3). Those of names that are
// only asked for again go on from the first subscribe, unless they are in restart.
func (s *streamState) subscribed(l *laneState, all []string, now time.Time) {
	l.gathers = now.Add(s.config.Coalesce)
	if l.more {
		l.gathers = time.Time{}
	}
	if len(all) == 0 {
		return
	}
	question := s.alive.question(now)
	var names []string
	for _, name := range all {
		if _, again := l.sent[name]; l.lane.Wildcard && !again {
			l.settle = settleState{waiting: true}
		}
		first, again := l.unanswered.unsubscribed[name]
		if again {
			l.unanswered.pairedAt = now
		}
		if _, restarts := l.restart[name]; again && !restarts {
			l.sent[name] = first
			continue
		}
		l.sent[name] = now
		delete(l.restart, name)
		names = append(names, name)
	}
	l.globs.asks(names)
	doubtful := s.hub.On(l.lane).Asked(names)
	if l.lane.Wildcard || len(names) == 0 {
		return
	}
	asked := nameTimer{now, question, l, names}
	s.timers.missing = append(s.timers.missing, asked)
	if l.unanswered.on {
		for part := range slices.Chunk(names, s.config.bounds().Part) {
			l.unanswered.waiting = append(l.unanswered.waiting, nameTimer{now, question, l, part})
		}
	}
	if !s.origin.SotW && len(doubtful) > 0 {
		// An opening request with versions does not show the versions of these: their bodies
		// are not kept, or an earlier stream ended before the server had confirmed them.
		s.timers.overdue = append(s.timers.overdue, overdueTimer{nameTimer{written: now, lane: l, names: doubtful}, now.Add(s.config.MissingExplicit)})
	}
}

// deadline is when something is due that concerns no single lane, or zero. missing is how long a name may be without an answer.
func (s *streamState) deadline(missing time.Duration, now time.Time) time.Time {
	at := s.timers.deadline(missing, s.alive, now)
	for _, v := range s.acks {
		at = earlier(at, toCome(v.notBefore, now))
	}
	return at
}
