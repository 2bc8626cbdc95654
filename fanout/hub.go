package fanout

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Wildcard is the name that stands for every resource of a type.
const Wildcard = "*"

// Lane is one of the two subscriptions that a group can have for a type upstream: by name, or the
// wildcard. Each fills a Table of its own (WILD-16).
type Lane struct {
	Type     cache.TypeURL
	Wildcard bool
}

// Config is the part of the configuration that a Hub needs.
type Config struct {
	// Name is what logs and the admin endpoint call the group.
	Name string
	// Key is the group's key in full, for people (H-23).
	Key string
	// Types says which types take an empty first request as a wildcard (WILD-2).
	Types cache.Types
	// Linger is how long a name stays subscribed upstream after its last client has given it up
	// (UP-7, WILD-15).
	Linger time.Duration
	// MaxLinger bounds the lingering names of one type. 0: none lingers.
	MaxLinger int
	// KeepUnwanted: what is given up is noted for Disk.Unwanted (RECON-19).
	KeepUnwanted bool
	// Guard holds back updates that remove much at once (H-22).
	Guard Guard
	// Unasked bounds the resources that are kept although nobody has asked for them (UP-9); nil:
	// none are kept.
	Unasked *Unasked
	// History remembers the resources that were replaced or removed last; nil: nothing does.
	History *History
	// Convergence measures how long changes take to the last client; nil: nothing does.
	Convergence *Convergence
	// Bounds are for tests; nil: DefaultBounds.
	Bounds *Bounds
	// Lock makes the lock of a type; nil: a sync.Mutex. Benchmarks use one that counts the work
	// done under it.
	Lock func() sync.Locker
}

// Hub is the meeting point of one group: what upstream has sent, and which clients subscribe to it.
// Its methods may be called from any goroutine.
type Hub struct {
	config Config
	// limits has the Linger, MaxLinger and Guard in force.
	limits atomic.Pointer[Config]
	// seq counts the changes of the group over all types.
	seq atomic.Uint64
	// identifier is the control plane's name of itself (DOWN-DELTA-19).
	identifier atomic.Pointer[string]
	// unasked counts the bytes of resources that are kept although nobody has asked for them.
	unasked atomic.Int64
	// forgotten counts the names and wildcards that were given up.
	forgotten atomic.Uint64
	// keepsAll: nothing is given up any more (Disk.Keep).
	keepsAll atomic.Bool
	// keepsLingering: upstream is not alive, and names that lead to something linger without a bound.
	keepsLingering atomic.Bool
	// globs: a client has asked for a glob, which is not served.
	globs atomic.Bool
	// arrivals says when the latest changes came.
	arrivals arrivals
	// wanted is the mailbox that points upstream.
	wanted Wanted
	// agenda is what the upstream side has to know of all types.
	agenda agenda
	// types are those of which something is known or wanted.
	types types
}

// NewHub returns the Hub of a new group.
func NewHub(c Config) *Hub {
	if c.Bounds == nil {
		c.Bounds = &DefaultBounds
	}
	h := &Hub{config: c, wanted: Wanted{dirty: make(map[Lane]struct{})}, agenda: agenda{flips: make(map[Lane]bool)}, types: types{indexes: make(map[cache.TypeURL]*index)}}
	h.limits.Store(&c)
	return h
}

// Reconfigure puts another Linger, MaxLinger and Guard in force. Names that linger already, and
// removals that are held back, keep their times. Names beyond a lower MaxLinger are given up.
func (h *Hub) Reconfigure(c Config) {
	if was := h.limits.Swap(&c); was.MaxLinger == c.MaxLinger {
		return // most may be higher, after a load from disk
	}
	for x := range h.types.locked() {
		x.linger.most = c.MaxLinger
		x.linger.bound()
	}
}

// Wanted returns the mailbox in which the Hub notes changes of interest for upstream.
func (h *Hub) Wanted() *Wanted { return &h.wanted }

// Name returns the group's name, for people.
func (h *Hub) Name() string { return h.config.Name }

// Key returns the group's key in full, for people.
func (h *Hub) Key() string { return h.config.Key }

// FirstGlob reports whether no client of the group has asked for a glob before, for the log (NAME-11).
func (h *Hub) FirstGlob() bool { return !h.globs.Swap(true) }

// Properties returns those of a type in this group.
func (h *Hub) Properties(t cache.TypeURL) cache.Properties { return h.config.Types.Of(t) }

// TypeTable says what the group treats types as.
func (h *Hub) TypeTable() cache.Types { return h.config.Types }

// SetIdentifier notes the control plane's identifier.
func (h *Hub) SetIdentifier(id string) { h.identifier.Store(&id) }

// Identifier returns the control plane's identifier, or "" if it has sent none.
func (h *Hub) Identifier() string {
	if id := h.identifier.Load(); id != nil {
		return *id
	}
	return ""
}

// Applied is what people should know of an Update that was applied.
type Applied struct {
	Held Held // removals that were held back, confirmed or forgotten (H-22)
	// Silent counts the names of clients that became Absent because upstream did not answer; First
	// is the first of them (MISS-3).
	Silent int
	First  string
	// Dropped counts the resources that nobody had asked for and that are not kept (UP-9).
	Dropped int
	// Concerned counts the subscriptions that are marked for the update, if its source is traced
	// and the client asks for sources. Behind counts the others of that kind, which are too far
	// behind for tracing to follow the update to them.
	Concerned, Behind int
}

// Apply takes in an Update on a lane, and wakes the clients that it concerns. It never waits for a
// client (UP-11). What the resources mention of the types in prefetch is subscribed to (UP-28).
func (h *Hub) Apply(lane Lane, u *cache.Update, prefetch ...cache.TypeURL) (a Applied) {
	var turns []turn
	h.types.change(lane.Type, func(x *index) {
		x.leaving.turns.kept = len(prefetch) > 0
		source, probe := x.sample(u.Source)
		x.marks.from(source)
		x.leaving.now = u.At
		a = x.lane(lane).apply(u)
		if !u.At.IsZero() {
			h.arrivals.note(x.latest, u.At)
		}
		a.Concerned, a.Behind = x.marks.concerned, x.marks.behind
		x.measure(probe)
		x.marks.from(nil)
		turns, x.leaving.turns = x.leaving.turns.all, recorder{}
	})
	h.prefetch(lane.Type, turns, prefetch, u.At)
	h.wanted.notify() // names that became Absent do not linger
	return a
}

// Unresolved reports whether a client asks for something that upstream has not answered since the
// relay started, or not with anything that can be used (UP-14).
func (h *Hub) Unresolved() bool { return h.types.any((*index).waits) }

func (x *index) waits() bool {
	if x.interest.wants(wildcardID) && (!x.wildcard.synced || x.wildcard.restored) {
		return true
	}
	for id := range x.interest.named() {
		if v := x.resolution(id, x.answers.of(id), true); v == Pending || v == InDoubt {
			return true
		}
	}
	return false
}

// Expire gives up what has lingered long enough. It returns when to call it again; the zero time
// means after the next change of interest.
func (h *Hub) Expire(now time.Time) (next time.Time) {
	defer h.wanted.notify()
	for {
		x, until := h.agenda.lingers()
		if until.IsZero() || until.After(now) {
			return until
		}
		x.change(func(x *index) { x.linger.expire(now) })
	}
}

// earlier returns the first of two times. A zero time stands for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Over notes that a stream has ended.
func (h *Hub) Over(stream uint64) {
	for _, x := range h.types.all() {
		x.change(func(x *index) {
			x.unsolicited.over(stream)
			x.wildcard.over(stream)
		})
		h.types.drop(x.url)
	}
}

// Close gives back what the group shares with others. The Hub must not be used after it.
func (h *Hub) Close() {
	for x := range h.types.locked() {
		x.unsolicited.end()
	}
	if h.config.History != nil {
		h.config.History.leave(h)
	}
}
