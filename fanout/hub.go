package fanout

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Wildcard is the name that stands for every resource of a type.
const Wildcard = "*"

// Lane is one of the two subscriptions that a group can have for a type
// upstream: by name, or the wildcard. Each fills a Table of its own (WILD-16).
type Lane struct {
	Type     cache.TypeURL
	Wildcard bool
}

// Config is what a Hub needs to know of the configuration.
type Config struct {
	// Name is what logs and the admin endpoint call the group.
	Name string
	// Key is the group's key in full, for people (H-23).
	Key string
	// Types says which types take an empty first request as a wildcard (WILD-2).
	Types cache.Types
	// Linger is how long a name that nobody wants any more stays subscribed
	// upstream (UP-7, WILD-15).
	Linger time.Duration
	// MaxLinger bounds the lingering names of one type.
	MaxLinger int
	// Guard holds back what would remove much at once (H-22).
	Guard Guard
	// Unasked bounds what is kept that nobody has asked for; nil: nothing is (UP-9).
	Unasked *Unasked
	// Bounds are for tests; nil: DefaultBounds.
	Bounds *Bounds
	// Lock makes the lock of a type; nil: a sync.Mutex. Benchmarks give one that counts what is
	// done under it.
	Lock func() sync.Locker
}

// limits are what of a Config can be changed while the Hub is in use.
type limits struct {
	linger    time.Duration
	maxLinger int
	guard     Guard
}

// limits are those of the configuration, of which a name lingers at least.
func (c *Config) limits() *limits { return &limits{c.Linger, max(c.MaxLinger, 1), c.Guard} }

// Hub is the meeting point of one group: what upstream said, and who wants to
// know. Its methods may be called from any goroutine.
type Hub struct {
	config Config
	bounds *Bounds
	// limits are those in force.
	limits atomic.Pointer[limits]
	// seq counts the changes of the group over all types.
	seq atomic.Uint64
	// identifier is the control plane's name of itself (DOWN-DELTA-19).
	identifier atomic.Pointer[string]
	// unasked is how many bytes are kept that nobody has asked for.
	unasked atomic.Int64
	// forgotten counts what was given up.
	forgotten atomic.Uint64
	// kept: nothing is given up any more.
	kept atomic.Bool
	// spares: upstream is not alive, and what leads to something lingers whatever its number.
	spares atomic.Bool
	// wanted is the mailbox that points upstream.
	wanted Wanted
	// types are those of which something is known or wanted.
	types types
}

// NewHub returns the Hub of a new group.
func NewHub(c Config) *Hub {
	h := &Hub{config: c, bounds: c.bounds()}
	h.limits.Store(c.limits())
	h.wanted.dirty = make(map[Lane]struct{})
	return h
}

// Reconfigure puts another Linger, MaxLinger and Guard in force. What lingers already does
// so for as long as it was to, and removals that are held back stay so; but no more names
// linger than may.
func (h *Hub) Reconfigure(c Config) {
	to := c.limits()
	if was := h.limits.Swap(to); was.maxLinger == to.maxLinger {
		return // what was loaded from disk may be more (warm.go)
	}
	for x := range h.types.locked() {
		x.linger.most = to.maxLinger
		x.linger.bound()
	}
}

// Wanted is the mailbox in which the Hub notes changes of interest for upstream.
func (h *Hub) Wanted() *Wanted { return &h.wanted }

// Name is the group's name, for people.
func (h *Hub) Name() string { return h.config.Name }

// Key is the group's key in full, for people.
func (h *Hub) Key() string { return h.config.Key }

// Properties are those of a type in this group.
func (h *Hub) Properties(t cache.TypeURL) cache.Properties { return h.config.Types.Of(t) }

// SetIdentifier notes the control plane's identifier.
func (h *Hub) SetIdentifier(id string) {
	if h.Identifier() != id {
		h.identifier.Store(&id)
	}
}

// Identifier is the control plane's identifier, as far as it gave one.
func (h *Hub) Identifier() string {
	if id := h.identifier.Load(); id != nil {
		return *id
	}
	return ""
}

// Applied is what came of an Update that people should know.
type Applied struct {
	Held Held // removals that were held back, or said again (H-22)
	// Silent are the names that became Absent for want of an answer, and First is the
	// first of them (MISS-3).
	Silent int
	First  string
	// Dropped are resources that nobody had asked for and that are not kept (UP-9).
	Dropped int
	// Concerned is how many clients' subscriptions are told of it, as far as they ask for
	// sources and the update has one that is traced.
	// Behind is how many others are so far behind that nobody follows it to them.
	Concerned, Behind int
}

// Apply takes in what upstream said on a lane, and wakes whom it concerns. It
// never waits for a client (UP-11).
func (h *Hub) Apply(lane Lane, u *cache.Update) (a Applied) {
	h.types.change(lane.Type, func(x *index) {
		x.marks.from(u.Source)
		x.leaving.now = u.At
		a = x.lane(lane).apply(u)
		a.Concerned, a.Behind = x.marks.concerned, x.marks.behind
		x.marks.from(nil)
	})
	h.wanted.notify() // what is known to be absent does not linger
	return a
}

// Unresolved reports whether anybody asks for something of which upstream has said nothing
// since the relay started, or nothing that can be used (UP-14).
func (h *Hub) Unresolved() bool {
	for x := range h.types.locked() {
		if x.waits() {
			return true
		}
	}
	return false
}

func (x *index) waits() bool {
	if x.interest.wants(wildcardID) && (!x.wildcard.synced || x.restored.set) {
		return true
	}
	for id := range x.interest.named() {
		switch x.verdict(id, x.answers.of(id), true) {
		case Unknown, Doubt:
			return true
		}
	}
	return false
}

// Expire gives up what has lingered long enough, and returns when to call it
// again; the zero time means when interest changes.
func (h *Hub) Expire(now time.Time) (next time.Time) {
	for x := range h.types.locked() {
		next = earlier(next, x.linger.expire(now, false))
	}
	h.wanted.notify()
	return next
}

// earlier is the first of two times, of which a zero one stands for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
