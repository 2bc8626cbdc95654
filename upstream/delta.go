package upstream

import (
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// deltaState is what one Delta ADS stream has said and still owes. All of it dies
// with the stream; what survives is in the Hub and in Core.
type deltaState struct {
	config *Config
	// nodeSent: the first request, which carries the node, is written (UP-2).
	nodeSent bool
	// lanes are what this stream carries now, at most one a type.
	lanes map[cache.TypeURL]*laneState
	// used are the types it ever carried, and as which lane: the server keeps
	// per-type state for the life of the stream, so that a type's other lane is
	// not put here (WILD-13).
	used map[cache.TypeURL]fanout.Lane
	// acks are owed, oldest first: one for each response (UP-4).
	acks   []verdict
	timers timers
}

type verdict struct {
	typeURL cache.TypeURL
	nonce   string
	nack    string // why, or "" for an ACK
}

// laneState is one lane on one stream.
type laneState struct {
	lane fanout.Lane
	// first: the lane's opening request, which restates everything, is not
	// written yet (UP-3).
	first bool
	// held: it waits until suspects before it have been tried (suspect.go).
	held bool
	// fresh: the stream had not carried the type before, so that versions may be
	// sent with the opening request (RECON-8).
	fresh bool
	// askedAt is when the opening request was written; answered: a response of
	// the type has come since.
	askedAt  time.Time
	answered bool

	// sent are the names subscribed on this stream, with the time.
	sent map[string]time.Time
	// want and drop are changes not written yet. A name in both is dropped
	// first, then asked for anew (UP-8).
	want, drop map[string]struct{}
	// again are names asked for once more for the sake of their bodies, with the
	// time at which that was written, or zero (VALID-5).
	again map[string]time.Time

	settle settleState
}

// maxAcks bounds what a control plane that sends without reading can pile up.
const maxAcks = 10000

func newDeltaState(c *Config) *deltaState {
	return &deltaState{
		config: c,
		lanes:  make(map[cache.TypeURL]*laneState),
		used:   make(map[cache.TypeURL]fanout.Lane),
	}
}

// carry puts a lane on the stream.
func (d *deltaState) carry(lane fanout.Lane, held bool) *laneState {
	_, before := d.used[lane.Type]
	l := &laneState{
		lane: lane, first: true, held: held, fresh: !before,
		sent: make(map[string]time.Time),
		want: make(map[string]struct{}),
		drop: make(map[string]struct{}),

		again: make(map[string]time.Time),
	}
	d.lanes[lane.Type] = l
	d.used[lane.Type] = lane
	return l
}

// change takes in what the Hub says of a lane's interest.
func (l *laneState) change(i fanout.Interest) {
	if l.first {
		return // the opening request will ask the Hub for everything
	}
	for _, name := range i.Want {
		_, sent := l.sent[name]
		_, dropping := l.drop[name]
		if !sent || dropping {
			l.want[name] = struct{}{}
		}
	}
	for _, name := range i.Again {
		l.want[name], l.again[name] = struct{}{}, time.Time{}
	}
	for _, name := range i.Drop {
		delete(l.want, name)
		delete(l.again, name)
		if _, sent := l.sent[name]; sent {
			l.drop[name] = struct{}{}
		}
	}
}

// idle: nothing is subscribed, nor about to be.
func (l *laneState) idle() bool {
	return !l.first && len(l.sent) == 0 && len(l.want) == 0 && len(l.drop) == 0
}

// next is the next request to write, or nil. It is computed now, from what is
// wanted now (UP-6).
func (d *deltaState) next(hub *fanout.Hub, node *core.Node, now time.Time) *discovery.DeltaDiscoveryRequest {
	req := d.nextVerdict()
	if req == nil {
		req = d.nextInterest(hub, now)
	}
	if req != nil && (!d.nodeSent || d.config.SendNodeAlways) {
		d.nodeSent = true
		req.Node = node
	}
	return req
}

// nextVerdict is an ACK or NACK; it never changes a subscription (UP-5).
func (d *deltaState) nextVerdict() *discovery.DeltaDiscoveryRequest {
	if len(d.acks) == 0 {
		return nil
	}
	v := d.acks[0]
	d.acks = d.acks[1:]
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(v.typeURL), ResponseNonce: v.nonce}
	if v.nack != "" {
		req.ErrorDetail = &statuspb.Status{Code: invalidArgument, Message: v.nack}
	}
	return req
}

const invalidArgument = 3 // google.rpc.Code

// nextInterest is a change of subscriptions; it never carries a nonce (UP-5).
func (d *deltaState) nextInterest(hub *fanout.Hub, now time.Time) *discovery.DeltaDiscoveryRequest {
	for _, l := range d.inOrder() {
		switch {
		case l.held:
		case l.first:
			if req := d.opening(l, hub, now); req != nil {
				return req
			}
		case len(l.drop) > 0:
			return d.changeOf(l, now)
		case len(l.want) > 0:
			return d.changeOf(l, now)
		}
	}
	return nil
}

// inOrder are the lanes in the order in which they are asked for: what others
// refer to first, so that an answer is of use when it comes.
func (d *deltaState) inOrder() []*laneState {
	lanes := make([]*laneState, 0, len(d.lanes))
	for _, l := range d.lanes {
		lanes = append(lanes, l)
	}
	slices.SortFunc(lanes, func(a, b *laneState) int { return laneOrder(a.lane, b.lane) })
	return lanes
}

func laneOrder(a, b fanout.Lane) int {
	if c := a.Type.Rank() - b.Type.Rank(); c != 0 {
		return c
	}
	return strings.Compare(string(a.Type), string(b.Type))
}

// opening restates a lane's whole interest (UP-3) with the versions that are here
// (RECON-6).
func (d *deltaState) opening(l *laneState, hub *fanout.Hub, now time.Time) *discovery.DeltaDiscoveryRequest {
	resumed := false
	names, versions := hub.Resume(l.lane, d.config.Entry, func(from string) bool {
		resumed = l.fresh && d.config.presents(from)
		return resumed
	})
	if len(names) == 0 {
		return nil // given up meanwhile; its lane goes with the next change
	}
	l.first, l.askedAt = false, now
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(l.lane.Type), InitialResourceVersions: versions}
	if l.lane.Wildcard {
		l.sent[fanout.Wildcard] = now
		l.settle.begin()
		if !d.legacy(l, hub) {
			req.ResourceNamesSubscribe = names
		}
		return req
	}
	req.ResourceNamesSubscribe = names
	d.subscribed(l, names, now)
	if !resumed {
		d.timers.resync(l, names, now, d.config)
	}
	return req
}

// legacy: the wildcard is asked for by naming nothing (WILD-10). That works only
// in a type's first request on a stream, and only for types where it means that.
func (d *deltaState) legacy(l *laneState, hub *fanout.Hub) bool {
	if !l.fresh {
		return false
	}
	switch d.config.WildcardForm {
	case WildcardExplicit:
		return false
	case WildcardLegacy:
		return true
	}
	return hub.Properties(l.lane.Type).EmptyIsWildcard
}

func (d *deltaState) changeOf(l *laneState, now time.Time) *discovery.DeltaDiscoveryRequest {
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: string(l.lane.Type)}
	for name := range l.drop {
		req.ResourceNamesUnsubscribe = append(req.ResourceNamesUnsubscribe, name)
		delete(l.sent, name)
	}
	for name := range l.want {
		if _, again := l.drop[name]; !again {
			req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, name)
			delete(l.want, name)
			if _, again := l.again[name]; again {
				l.again[name] = now
			}
		}
	}
	clear(l.drop)
	slices.Sort(req.ResourceNamesSubscribe)
	slices.Sort(req.ResourceNamesUnsubscribe)
	if l.lane.Wildcard {
		for _, name := range req.ResourceNamesSubscribe {
			if _, again := l.sent[name]; !again {
				l.settle.begin()
			}
			l.sent[name] = now
		}
		return req
	}
	d.subscribed(l, req.ResourceNamesSubscribe, now)
	return req
}

// subscribed notes names as written, and starts their timers (MISS-3).
func (d *deltaState) subscribed(l *laneState, names []string, now time.Time) {
	for _, name := range names {
		l.sent[name] = now
	}
	d.timers.start(l, names, now)
}

// insistAfter is how long a subscription that was repeated may stay unanswered. Then
// it is given up and begun anew: some servers answer nothing else (VALID-5).
const insistAfter = time.Second

// insist begins subscriptions anew whose repetition was not answered.
func (l *laneState) insist(now time.Time) {
	for name, written := range l.again {
		if !written.IsZero() && !now.Before(written.Add(insistAfter)) {
			l.drop[name], l.want[name] = struct{}{}, struct{}{}
			delete(l.again, name)
		}
	}
}

// insistence is when to insist next, or zero.
func (l *laneState) insistence() (at time.Time) {
	for _, written := range l.again {
		if !written.IsZero() {
			at = earlier(at, written.Add(insistAfter))
		}
	}
	return at
}

// answers takes note of the names that a response answers.
func (l *laneState) answers(u *cache.Update) {
	if len(l.again) == 0 {
		return
	}
	for _, r := range u.Set {
		delete(l.again, r.Name)
		for _, alias := range r.Aliases {
			delete(l.again, alias)
		}
		if r.DoNotCache && l.lane.Wildcard {
			delete(l.again, fanout.Wildcard)
		}
	}
	for _, name := range u.Removed {
		delete(l.again, name)
	}
	for _, e := range u.Errors {
		delete(l.again, e.Name)
	}
}
