package admin

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream"
)

// The page looks at all clients again and again, for everybody who has it open. So they share one fleet, which has of
// each client what a list shows, and is taken anew when something has moved, but takes no more than a small part of a
// processor: client by client, so that there is never a second copy of what the sessions know.

const (
	// resting is how many times as long as it took to take a fleet it is kept at least, while things move; and it is kept
	// for atLeast, half of the time between two questions of a page.
	resting = 40
	atLeast = 500 * time.Millisecond
	// atRest is how long a fleet is kept while nothing moves, and afterwards how long it is kept for the next who asks.
	atRest    = 5 * time.Second
	forgotten = time.Minute
)

// fleet is all clients at about one moment. Nobody changes it.
type fleet struct {
	at     time.Time
	moves  uint64 // observed.moves before it was taken
	took   time.Duration
	rows   []row // oldest first
	states [countOfStates]int
}

const countOfStates = int(Rejected) + 1

// row is one client.
type row struct {
	Stream   uint64
	Node     string
	Cluster  string
	Peer     string
	Identity string
	Variant  int         // in protocols
	State    ClientState // the worst of its types
	Behind   int
	Since    time.Time // when it connected
	Waits    time.Time // since when it has not been in step, by the type that has waited longest
	Types    []rowType
}

// rowType is one type of it.
type rowType struct {
	Type   cache.TypeURL
	Group  string
	State  ClientState
	Behind int
	Since  time.Time // since when it has not been in step
}

// Protocol is the variant that the client speaks.
func (r *row) Protocol() string { return protocols[r.Variant] }

func rowOf(c *downstream.Client) row {
	r := row{Stream: c.Stream, Node: c.Node, Cluster: c.Cluster, Peer: c.Peer, Identity: c.Identity, Variant: max(slices.Index(protocols, c.Protocol), 0), Since: c.Since}
	r.Types = make([]rowType, 0, len(c.Types))
	for i := range c.Types {
		t := &c.Types[i]
		of := rowType{Type: t.Type, Group: t.Group, State: StateOf(t), Behind: BehindOf(t), Since: t.Since}
		r.Types = append(r.Types, of)
		r.State = max(r.State, of.State)
		r.Behind += of.Behind
		if !of.Since.IsZero() && (r.Waits.IsZero() || of.Since.Before(r.Waits)) {
			r.Waits = of.Since
		}
	}
	slices.SortFunc(r.Types, func(a, b rowType) int { return a.Type.Rank() - b.Type.Rank() })
	return r
}

// fleets takes them.
type fleets struct {
	relay Relay
	moves *atomic.Uint64
	taken atomic.Int64 // how many times

	mu     sync.Mutex
	last   *fleet // nil: nobody has looked for a while
	forget *time.Timer
}

// now is the fleet as it is, or was a moment ago.
func (f *fleets) now() *fleet {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.forget == nil {
		f.forget = time.AfterFunc(forgotten, f.drop)
	} else {
		f.forget.Reset(forgotten)
	}
	if f.last == nil || !f.last.serves(f.moves.Load(), time.Now()) {
		f.last = f.take()
	}
	return f.last
}

func (f *fleets) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = nil
}

// serves reports whether a fleet need not be taken anew.
func (f *fleet) serves(moves uint64, now time.Time) bool {
	age := now.Sub(f.at)
	return age < max(resting*f.took, atLeast) || f.moves == moves && age < atRest
}

func (f *fleets) take() *fleet {
	f.taken.Add(1)
	all := &fleet{at: time.Now(), moves: f.moves.Load()}
	streams := f.relay.Streams()
	all.rows = make([]row, 0, len(streams))
	for _, stream := range streams {
		c, ok := f.relay.Client(stream)
		if !ok {
			continue // it has gone
		}
		r := rowOf(&c)
		all.rows = append(all.rows, r)
		all.states[r.State]++
	}
	all.took = time.Since(all.at)
	return all
}

// stale reports whether a client counts in fleet.stale.
func (r *row) stale() bool { return r.State == NotSent || r.State == Stale }

// out is how many clients are out of step, and the worst state of any.
func (f *fleet) out() (clients int, worst ClientState) {
	for s := InStep + 1; s <= Rejected; s++ {
		if n := f.states[s]; n > 0 {
			clients, worst = clients+n, s
		}
	}
	return clients, worst
}

// stale counts the clients that lack something and have rejected nothing, as people say it: what was never sent is
// among it.
func (f *fleet) stale() int { return f.states[NotSent] + f.states[Stale] }
