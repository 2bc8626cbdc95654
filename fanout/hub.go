package fanout

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

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

	mu      sync.RWMutex
	indexes map[cache.TypeURL]*index
}

// NewHub returns the Hub of a new group.
func NewHub(c Config) *Hub {
	h := &Hub{config: c, bounds: c.bounds(), indexes: make(map[cache.TypeURL]*index)}
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
	for _, x := range h.all() {
		x.mu.Lock()
		x.linger.most = to.maxLinger
		x.linger.bound()
		x.mu.Unlock()
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

// index finds or makes the index of a type.
func (h *Hub) index(t cache.TypeURL) *index {
	if x := h.find(t); x != nil {
		return x
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.indexes[t]
	if x == nil {
		x = newIndex(h, t)
		h.indexes[t] = x
	}
	return x
}

func (h *Hub) find(t cache.TypeURL) *index {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.indexes[t]
}

// look asks something of a type, if anything is known of it, under its lock.
func (h *Hub) look(t cache.TypeURL, ask func(*index)) {
	if x := h.find(t); x != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		ask(x)
	}
}

// drop forgets the index of a type if nothing is known and nothing wanted of it, so
// that types which clients once asked for cost nothing.
func (h *Hub) drop(x *index) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.interest.subscriptions == 0 && x.named.Pins() == 0 && !x.wildcard.held && !x.suspect && !x.shown.remembers() {
		x.dropped = true
		delete(h.indexes, x.url)
	}
}

func (h *Hub) all() []*index {
	h.mu.RLock()
	defer h.mu.RUnlock()
	all := make([]*index, 0, len(h.indexes))
	for _, x := range h.indexes {
		all = append(all, x)
	}
	return all
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
	x := h.find(lane.Type)
	if x == nil {
		return a // nobody is interested in the type any more
	}
	wakeAll(x.locked(func() {
		x.marks.from(u.Source)
		x.leaving.now = u.At
		a = x.lane(lane).apply(u)
		a.Concerned, a.Behind = x.marks.concerned, x.marks.behind
		x.marks.from(nil)
	}))
	h.wanted.notify() // what is known to be absent does not linger
	return a
}

// SetUnavailable says that a lane gets no answers from upstream, and why, or with
// nil that it does again (ERR-7, H-39). Clients with something unresolved are
// told; resources stay as they are (ERR-5).
func (h *Hub) SetUnavailable(lane Lane, status *statuspb.Status) {
	if x := h.find(lane.Type); x != nil {
		wakeAll(x.locked(func() { x.lane(lane).setUnavailable(status) }))
	}
}

// SetSuspect says that upstream may be refusing a type. A suspect does not
// linger: it is given up with its last client (H-41).
func (h *Hub) SetSuspect(t cache.TypeURL, suspect bool) {
	x := h.find(t)
	if x == nil {
		return
	}
	x.mu.Lock()
	x.suspect = suspect
	if suspect {
		x.linger.expire(time.Time{}, true)
	}
	x.mu.Unlock()
	h.wanted.notify()
	h.drop(x)
}

// Holds reports whether a name is present on a lane at the version upstream gave
// it: what makes a bodyless resource a heartbeat (TTL-4).
func (h *Hub) Holds(lane Lane, name, version string) (holds bool) {
	h.look(lane.Type, func(x *index) { holds = x.lane(lane).Holds(name, version) })
	return holds
}

// Has reports whether a name is present on a lane.
func (h *Hub) Has(lane Lane, name string) (has bool) {
	h.look(lane.Type, func(x *index) { has = x.lane(lane).Has(name) })
	return has
}

// Lacks reports whether any of the resources is not here on a lane yet, or not
// confirmed, or only from disk: what makes a response add a name (RECON-16).
func (h *Hub) Lacks(lane Lane, set []cache.Received) (lacks bool) {
	h.look(lane.Type, func(x *index) {
		lacks = slices.ContainsFunc(set, func(r cache.Received) bool {
			return !x.lane(lane).Confirmed(r.Name) || x.restored.has(r.Name) && !lane.Wildcard
		})
	})
	return lacks
}

// Same are the names of those of the resources that are here on a lane with the very
// content.
func (h *Hub) Same(lane Lane, set []cache.Received) map[string]bool {
	same := make(map[string]bool)
	h.look(lane.Type, func(x *index) {
		for _, r := range set {
			if x.lane(lane).Same(r.Resource) {
				same[r.Name] = true
			}
		}
	})
	return same
}

// Sweeps reports whether something is here on a lane that its origin has not announced,
// nor announces with these (RECON-12).
func (h *Hub) Sweeps(lane Lane, announced []cache.Received) (sweeps bool) {
	h.look(lane.Type, func(x *index) {
		names := make(map[string]bool, len(announced))
		for _, r := range announced {
			names[r.Name] = true
		}
		sweeps = slices.ContainsFunc(x.lane(lane).Unconfirmed(), func(name string) bool { return !names[name] })
	})
	return sweeps
}

// Overdue are those of some names, of which a stream was silent for too long, that lead to something
// which it has not announced: that may be swept now, or later, while an error that came for the name
// on the stream is its answer. One that says that there is nothing by that name is none, nor is one
// that came on an earlier stream.
func (h *Hub) Overdue(t cache.TypeURL, names []string, stream uint64) (now, later []string) {
	h.look(t, func(x *index) {
		for _, name := range names {
			if len(x.named.UnconfirmedAnswers(name)) == 0 {
				continue
			}
			id, _ := x.named.Find(name)
			if err := x.named.Answer(id).Error; err != nil && err.GetCode() != cache.NotFound && x.named.refused[name] == stream {
				later = append(later, name)
			} else {
				now = append(now, name)
			}
		}
	})
	return now, later
}

// Len is the number of resources on a lane.
func (h *Hub) Len(lane Lane) (n int) {
	h.look(lane.Type, func(x *index) { n = x.lane(lane).Len() })
	return n
}

// Synced reports whether the wildcard set of a type has been complete (RECON-16).
func (h *Hub) Synced(t cache.TypeURL) (synced bool) {
	h.look(t, func(x *index) { synced = x.wildcard.synced })
	return synced
}

// Unresolved reports whether anybody asks for something of which upstream has said nothing
// since the relay started, or nothing that can be used (UP-14).
func (h *Hub) Unresolved() bool {
	for _, x := range h.all() {
		x.mu.Lock()
		waits := x.waits()
		x.mu.Unlock()
		if waits {
			return true
		}
	}
	return false
}

func (x *index) waits() bool {
	if x.wants(wildcardID) && (!x.wildcard.synced || x.restored.set) {
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
	for _, x := range h.all() {
		x.mu.Lock()
		at := x.linger.expire(now, false)
		x.mu.Unlock()
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	h.wanted.notify()
	return next
}
