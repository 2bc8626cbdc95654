package fanout

import (
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/xds-relay/xds-relay/cache"
)

// index is all that a group knows about one type: the resources, and who wants
// them.
type index struct {
	hub *Hub
	url cache.TypeURL

	// Everything below is guarded by mu.
	mu sync.Mutex

	// Resources. A lane's Table is written by the upstream stream that carries
	// the lane.
	named    cache.Table
	wildcard cache.Table
	// synced: the wildcard Table has been complete once (RECON-16, RECON-17).
	synced bool
	// unavailable: upstream does not answer on this lane, and why (ERR-7).
	unavailable struct{ named, wildcard *statuspb.Status }

	// Interest.
	interest      [][]*Subscription // by named ID, ascending by subscription number
	wildcards     []*Subscription   // ascending by subscription number
	wanted        int               // names with any interest
	subscriptions int
	nextNumber    uint64

	// Lingering: wanted by nobody, still subscribed upstream (UP-7). The time is
	// when it is given up.
	linger  *simplelru.LRU[lingering, time.Time]
	suspect bool

	// Scratch of one Apply.
	touched []cache.ID
	woken   []*Subscriber
}

type lingering struct {
	wildcard bool
	name     string
}

func newIndex(h *Hub, t cache.TypeURL) *index {
	x := &index{hub: h, url: t}
	// The only error is a size below one, which NewHub rules out.
	x.linger, _ = simplelru.NewLRU(h.config.MaxLinger, func(l lingering, _ time.Time) { x.gone(l) })
	return x
}

// gone is told of every name that stops lingering, wanted again or not.
func (x *index) gone(l lingering) {
	x.hub.wanted.mark(Lane{x.url, l.wildcard}, l.name)
}

func (x *index) next() cache.Seq { return cache.Seq(x.hub.seq.Add(1)) }

// --- upstream's answers ---

func (x *index) applyNamed(u *cache.Update) {
	for _, r := range u.Set {
		if !x.covers(r.Resource) {
			continue // UP-9, H-31: nobody asked for it
		}
		told := x.borrowers(r.Resource)
		touched, _ := x.named.Set(r.Resource, r.Upstream, x.next(), x.touched[:0])
		x.markNamed(slices.DeleteFunc(touched, func(id cache.ID) bool { return slices.Contains(told, id) }))
	}
	for _, r := range u.Negative {
		x.markNamed(x.named.Deny(r, x.next(), x.touched[:0]))
	}
	for _, name := range u.Removed {
		x.removeNamed(name, cache.Removed)
	}
	for _, e := range u.Errors {
		if e.Status.GetCode() == cache.NotFound {
			x.removeNamed(e.Name, cache.NotFoundError)
		}
		if id, ok := x.named.Find(e.Name); ok && x.desired(false, e.Name) {
			x.named.Fail(id, e.Status)
			x.markError(id)
		}
	}
	for _, name := range u.Missing {
		if _, ok := x.silent(name); ok {
			x.removeNamed(name, cache.Timer)
		}
	}
	for _, name := range u.Unanswered {
		if id, ok := x.silent(name); ok {
			x.named.Fail(id, unanswered)
			x.markError(id)
		}
	}
}

// silent: upstream has said nothing of a name, not even an error. A name served
// from the wildcard's copy does not count: it is there.
func (x *index) silent(name string) (cache.ID, bool) {
	id, ok := x.named.Find(name)
	if !ok {
		return 0, false
	}
	a := x.answer(id)
	return id, a.State == cache.Unknown && a.Error == nil
}

var unanswered = &statuspb.Status{
	Code:    cache.Unavailable,
	Message: "xds-relay: upstream did not answer for this name in time",
}

func (x *index) removeNamed(name string, cause cache.Cause) {
	touched, changed := x.named.Remove(name, cause, x.next(), x.touched[:0])
	if !changed {
		return
	}
	x.markNamed(touched)
	if id, ok := x.named.Find(name); ok && !x.desired(false, name) {
		x.named.Forget(id, keepNone)
	}
}

func keepNone(*cache.Resource) bool { return false }

func (x *index) applyWildcard(u *cache.Update) {
	changed := false
	for _, r := range u.Set {
		touched, c := x.wildcard.Set(r.Resource, r.Upstream, x.next(), x.touched[:0])
		x.shadow(touched)
		changed = changed || c
	}
	remove := func(name string) {
		touched, c := x.wildcard.Remove(name, cache.Removed, x.next(), x.touched[:0])
		x.shadow(touched)
		changed = changed || c
	}
	for _, name := range u.Removed {
		remove(name)
	}
	for _, e := range u.Errors {
		if e.Status.GetCode() == cache.NotFound {
			remove(e.Name)
		}
	}
	if u.Synced && !x.synced {
		x.synced, changed = true, true
	}
	if changed {
		for _, s := range x.wildcards {
			x.wake(s.subscriber.mark(s, mark{wildcard: true}))
		}
	}
	if x.wildcard.Tombstones() > 64+x.wildcard.Len()/4 {
		x.prune()
	}
}

// prune drops the tombstones that every wildcard client has been told of.
func (x *index) prune() {
	passed := cache.Seq(x.hub.seq.Load())
	for _, s := range x.wildcards {
		passed = min(passed, s.passed)
	}
	x.wildcard.Prune(passed)
}

// shadow marks the named interest that is served from the wildcard's copy because
// its own lane has not answered yet (WILD-11, WILD-16).
func (x *index) shadow(touched []cache.ID) {
	x.touched = touched
	for _, w := range touched {
		if id, ok := x.named.Find(x.wildcard.Name(w)); ok && x.borrows(id) {
			x.markContent(id)
		}
	}
}

// borrows: a name's own lane gives no answer that outweighs a wildcard copy. A
// does-not-exist timer does not: it is silence, not an answer (H-40).
func (x *index) borrows(id cache.ID) bool {
	if !x.named.Answered(id) {
		return true
	}
	a := x.named.Answer(id)
	return a.State == cache.Absent && a.Cause == cache.Timer
}

// borrowers are the names whose subscribers have been given exactly this resource
// from the wildcard's copy, and need not be told again (DOWN-DELTA-14).
func (x *index) borrowers(r *cache.Resource) (told []cache.ID) {
	if x.wildcard.Len() == 0 {
		return nil
	}
	for name := range names(r) {
		id, ok := x.named.Find(name)
		if !ok || !x.borrows(id) {
			continue
		}
		a := x.answer(id)
		if a.State == cache.Present && a.Resource.Name == r.Name && a.Resource.Version == r.Version && len(a.More) == 0 {
			told = append(told, id)
		}
	}
	return told
}

// names yields a resource's name and aliases.
func names(r *cache.Resource) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(r.Name) {
			return
		}
		for _, alias := range r.Aliases {
			if !yield(alias) {
				return
			}
		}
	}
}

// answer is what a name leads to for a client: the named Table's answer, or
// until it has one the wildcard's copy (WILD-16).
func (x *index) answer(id cache.ID) cache.Answer {
	a := x.named.Answer(id)
	if x.borrows(id) {
		if w, ok := x.wildcard.Find(x.named.Name(id)); ok {
			if b := x.wildcard.Answer(w); b.State == cache.Present {
				b.Error = a.Error
				return b
			}
		}
	}
	return a
}

func (x *index) setUnavailable(wildcard bool, status *statuspb.Status) {
	if wildcard {
		x.unavailable.wildcard = status
	} else {
		x.unavailable.named = status
	}
	if status == nil {
		return
	}
	if wildcard && !x.synced {
		for _, s := range x.wildcards {
			x.wake(s.subscriber.mark(s, mark{wildcard: true}))
		}
	}
	if !wildcard {
		for id := range x.interest {
			if len(x.interest[id]) > 0 && x.answer(cache.ID(id)).State == cache.Unknown {
				x.markError(cache.ID(id))
			}
		}
	}
}

// --- marking ---

func (x *index) markNamed(touched []cache.ID) {
	x.touched = touched
	for _, id := range touched {
		x.markContent(id)
	}
}

func (x *index) markContent(id cache.ID) { x.markID(id, mark{id: id}) }
func (x *index) markError(id cache.ID)   { x.markID(id, mark{id: id, isError: true}) }

func (x *index) markID(id cache.ID, m mark) {
	if int(id) >= len(x.interest) {
		return
	}
	for _, s := range x.interest[id] {
		x.wake(s.subscriber.mark(s, m))
	}
}

func (x *index) wake(s *Subscriber) {
	if s != nil {
		x.woken = append(x.woken, s)
	}
}

func (x *index) takeWoken() []*Subscriber {
	woken := x.woken
	x.woken = nil
	return woken
}

func wakeAll(woken []*Subscriber) {
	for _, s := range woken {
		s.wake()
	}
}

// --- interest ---

// desired: somebody wants it, or it lingers.
func (x *index) desired(wildcard bool, name string) bool {
	if x.linger.Contains(lingering{wildcard, name}) {
		return true
	}
	if wildcard {
		return len(x.wildcards) > 0
	}
	id, ok := x.named.Find(name)
	return ok && x.wants(id)
}

func (x *index) wants(id cache.ID) bool { return int(id) < len(x.interest) && len(x.interest[id]) > 0 }

// covers: somebody wants the resource by its name or one of its aliases (NAME-3).
func (x *index) covers(r *cache.Resource) bool {
	return x.desired(false, r.Name) ||
		slices.ContainsFunc(r.Aliases, func(alias string) bool { return x.desired(false, alias) })
}

// want adds a subscription to a name.
func (x *index) want(s *Subscription, name string) cache.ID {
	id := x.named.Intern(name)
	if need := x.named.Cap(); need > len(x.interest) {
		x.interest = slices.Grow(x.interest, need-len(x.interest))[:need]
	}
	var first bool
	x.interest[id], first = insert(x.interest[id], s)
	if first {
		x.wanted++
		x.linger.Remove(lingering{false, name})
		x.hub.wanted.mark(Lane{x.url, false}, name)
	}
	return id
}

// unwant takes a subscription to a name away.
func (x *index) unwant(s *Subscription, id cache.ID, now time.Time) {
	var last bool
	x.interest[id], last = remove(x.interest[id], s)
	if last {
		x.interest[id] = nil
		x.wanted--
		x.leave(lingering{false, x.named.Name(id)}, now)
	}
}

func (x *index) wantWildcard(s *Subscription) {
	var first bool
	x.wildcards, first = insert(x.wildcards, s)
	if first {
		x.linger.Remove(lingering{true, Wildcard})
		x.hub.wanted.mark(Lane{x.url, true}, Wildcard)
	}
}

func (x *index) unwantWildcard(s *Subscription, now time.Time) {
	var last bool
	if x.wildcards, last = remove(x.wildcards, s); last {
		x.leave(lingering{true, Wildcard}, now)
	}
}

// leave is called when the last interest in something ends.
func (x *index) leave(l lingering, now time.Time) {
	if x.suspect || x.hub.config.Linger <= 0 {
		x.gone(l)
		return
	}
	x.linger.Add(l, now.Add(x.hub.config.Linger))
}

// expire gives up what has lingered until now, or everything.
func (x *index) expire(now time.Time, everything bool) (next time.Time) {
	for {
		l, until, ok := x.linger.GetOldest()
		if !ok {
			return time.Time{}
		}
		if !everything && until.After(now) {
			return until
		}
		x.linger.Remove(l)
	}
}

// forget drops what is known of something that nobody wants (UP-8, H-18).
func (x *index) forget(wildcard bool, name string) {
	if wildcard {
		x.wildcard, x.synced = cache.Table{}, false
		return
	}
	if id, ok := x.named.Find(name); ok {
		x.named.Forget(id, x.covers)
		x.named.Unpin(id)
	}
}

func (x *index) wantedLanes() (named, wildcard bool) {
	lingeringNames := x.linger.Len()
	if x.linger.Contains(lingering{true, Wildcard}) {
		lingeringNames--
	}
	return x.wanted > 0 || lingeringNames > 0, x.desired(true, Wildcard)
}

func (x *index) resume(wildcard bool) (names []string, versions map[string]string) {
	table := &x.named
	if wildcard {
		if !x.desired(true, Wildcard) {
			return nil, nil
		}
		table, names = &x.wildcard, []string{Wildcard}
	} else {
		for id, subs := range x.interest {
			if len(subs) > 0 {
				names = append(names, x.named.Name(cache.ID(id)))
			}
		}
		for _, l := range x.linger.Keys() {
			if !l.wildcard {
				names = append(names, l.name)
			}
		}
		slices.Sort(names)
	}
	versions = make(map[string]string, table.Len())
	for name, version := range table.Versions() {
		versions[name] = version
	}
	return names, versions
}

// insert adds a subscription to a list kept in order of number, so that taking it
// away is a binary search. first: the list was empty.
func insert(subs []*Subscription, s *Subscription) (_ []*Subscription, first bool) {
	i, found := search(subs, s)
	if found {
		return subs, false
	}
	return slices.Insert(subs, i, s), len(subs) == 0
}

// remove takes a subscription out. last: the list is empty now.
func remove(subs []*Subscription, s *Subscription) (_ []*Subscription, last bool) {
	i, found := search(subs, s)
	if !found {
		return subs, false
	}
	subs = slices.Delete(subs, i, i+1)
	return subs, len(subs) == 0
}

func search(subs []*Subscription, s *Subscription) (int, bool) {
	if n := len(subs); n > 0 && subs[n-1].number < s.number {
		return n, false // newcomers come last
	}
	return slices.BinarySearchFunc(subs, s.number, func(e *Subscription, n uint64) int {
		switch {
		case e.number < n:
			return -1
		case e.number > n:
			return 1
		}
		return 0
	})
}
