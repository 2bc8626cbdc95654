package origin

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
)

// World is all that there is: the resources of each type, by their names. A type that is not in it has none. It never
// changes once it is published.
type World map[cache.TypeURL]map[string]*cache.Resource

// Origin is a control plane within the process. Its methods may be called from any goroutine.
type Origin struct {
	hub    *fanout.Hub
	server *Server
	wake   chan struct{} // one slot
	done   chan struct{}
	work   sync.WaitGroup

	mu   sync.Mutex
	next World // published, and not served yet; nil: there is none

	world World // what is served; run's own
}

// New starts an Origin. Until something is published it cannot be reached.
func New(o Options) *Origin {
	or := &Origin{
		hub:  fanout.NewHub(fanout.Config{Name: o.Name, Types: o.Session.Types}),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	or.hub.SetIdentifier(o.Name)
	or.hub.Wanted().OnWake(or.poke)
	or.server = NewServer(o, or)
	or.work.Go(or.run)
	return or
}

// Publish puts another world in place of the one before. It returns at once.
func (o *Origin) Publish(w World) {
	o.mu.Lock()
	o.next = w
	o.mu.Unlock()
	o.server.Open()
	o.poke()
}

// Dial is the way to it.
func (o *Origin) Dial(ctx context.Context, address string) (net.Conn, error) {
	return o.server.Dial(ctx, address)
}

// Close ends all streams, and returns when nothing goes on any more.
func (o *Origin) Close() {
	o.server.Close()
	close(o.done)
	o.work.Wait()
	o.hub.Close()
}

// Key implements session.Groups: there is one group, and everybody is in it.
func (o *Origin) Key(session.Peer, *core.Node) (string, *session.End) { return "", nil }

// Join implements session.Groups.
func (o *Origin) Join(session.Peer, *core.Node, cache.TypeURL) (session.Membership, *session.End) {
	return session.Membership{Hub: o.hub, Leave: func() {}}, nil
}

func (o *Origin) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run fills the Hub.
func (o *Origin) run() {
	for {
		select {
		case <-o.done:
			return
		case <-o.wake:
		}
		o.mu.Lock()
		next := o.next
		o.next = nil
		o.mu.Unlock()
		if next != nil {
			o.replace(next)
		}
		o.answer()
	}
}

// stream is the number of the one stream on which everything comes, as far as the Hub knows.
const stream = 1

// change is what the Hub is told about a lane.
type change struct {
	lane fanout.Lane
	*cache.Update
}

// apply puts a change into the Hub, in the order of names.
func (o *Origin) apply(c change) {
	if len(c.Set)+len(c.Removed) == 0 && !c.Synced {
		return
	}
	slices.SortFunc(c.Set, func(a, b cache.Received) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(c.Removed)
	o.hub.Apply(c.lane, c.Update)
}

// answer gives the Hub what is wanted of it since the last time, or says that it does not exist.
func (o *Origin) answer() {
	now := time.Now()
	wants, _ := o.hub.Changes(now, func(fanout.Lane) (fanout.Carrier, bool) {
		return fanout.Carrier{Origin: cache.Origin{Entry: o.hub.Name()}}, true
	})
	for lane, i := range wants {
		if len(i.Want) == 0 {
			continue
		}
		o.hub.On(lane).Asked(i.Want)
		u := &cache.Update{At: now, Stream: stream, First: true, Synced: lane.Wildcard}
		if lane.Wildcard {
			u.Set, _ = o.differs(lane, nil)
		} else {
			u.Set, u.Removed = o.resolve(lane.Type, i.Want)
		}
		o.apply(change{lane, u})
	}
}

// resolve returns what names lead to, and those that lead to nothing.
func (o *Origin) resolve(t cache.TypeURL, names []string) (set []cache.Received, missing []string) {
	for _, name := range Covered(names, maps.Values(o.world[t])) {
		if r := o.world[t][name]; r != nil {
			set = append(set, cache.Received{Resource: r, Upstream: r.Version})
		} else {
			missing = append(missing, name)
		}
	}
	return set, missing
}

// replace tells the Hub what differs from the world before, as make before break wants it (ORDER-2): what others refer
// to comes first, and goes last.
func (o *Origin) replace(next World) {
	before := o.world
	o.world = next
	now := time.Now()
	var last []change
	for _, lane := range o.wanted() {
		set, gone := o.differs(lane, before[lane.Type])
		c := change{lane, &cache.Update{At: now, Stream: stream, Set: set}}
		if lane.Type.ReplacesAtOnce() {
			c.Removed, gone = gone, nil
		}
		o.apply(c)
		last = append(last, change{lane, &cache.Update{At: now, Stream: stream, Removed: gone}})
	}
	for _, c := range slices.Backward(last) {
		o.apply(c)
	}
}

// wanted are the lanes on which something is wanted, in the order of types.
func (o *Origin) wanted() (lanes []fanout.Lane) {
	for lane := range o.hub.Lanes() {
		lanes = append(lanes, lane)
	}
	slices.SortFunc(lanes, func(a, b fanout.Lane) int {
		return cmp.Or(a.Type.Rank()-b.Type.Rank(), strings.Compare(string(a.Type), string(b.Type)))
	})
	return lanes
}

// differs returns the wanted resources of a lane that are new, or not what they were, and the names of those that are
// gone.
func (o *Origin) differs(lane fanout.Lane, before map[string]*cache.Resource) (set []cache.Received, gone []string) {
	now := o.world[lane.Type]
	names := either(now, before)
	if !lane.Wildcard {
		names = slices.Values(Covered(o.hub.On(lane).Names(), maps.Values(now), maps.Values(before)))
	}
	for name := range names {
		switch is, was := now[name], before[name]; {
		case is == nil && was != nil:
			gone = append(gone, name)
		case is != nil && (was == nil || was.Version != is.Version):
			set = append(set, cache.Received{Resource: is, Upstream: is.Version})
		}
	}
	return set, gone
}

// either yields the names of two sets, each once.
func either(a, b map[string]*cache.Resource) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range a {
			if !yield(name) {
				return
			}
		}
		for name := range b {
			if a[name] == nil && !yield(name) {
				return
			}
		}
	}
}

// errClosed: nobody can be reached.
var errClosed = errors.New("there is nothing to serve yet")
