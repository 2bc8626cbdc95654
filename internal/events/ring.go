package events

import (
	"container/list"
	"net"
	"sync"
	"time"
)

// Ring has the latest events. A nil Ring has none, and publishing to it does nothing. Its methods may be called from
// any goroutine, under any lock, and do not block.
//
// No flood pushes everything else out. Events of one subject and kind are one event, which counts them. One holder,
// a client's identity or address, has a part of the ring at most. When the ring is full, the oldest event of the
// kind goes that has most.
type Ring struct {
	most    int // events
	ofOne   int // of one holder
	again   time.Duration
	now     func() time.Time
	publish func(Kind)

	mu       sync.Mutex
	turn     uint64 // counts what was published
	last     uint64 // the last ID
	gone     uint64 // the greatest ID of an event that had to go
	all      *list.List
	kinds    map[Kind]*list.List
	holders  map[string]*list.List
	subjects map[string]*subject
	waiting  []*subject // that have repeats to tell, in the order of since
	readers  map[*Reader]struct{}
}

// entry is an event in the ring, and its places in lists.
type entry struct {
	Event
	untold                  bool   // it was repeated since it was told,
	turn                    uint64 // the last time in this turn
	inAll, inKind, inHolder *list.Element
	holder                  string
}

// subject is what events are repeats about.
type subject struct {
	name    string
	told    time.Time
	since   time.Time // when the first repeat came that is not told; zero: there is none
	entries map[Kind]*entry
}

const (
	// Most bounds the events of a Ring.
	Most = 10_000
	// Again is how soon a repeat is told again; until then it only counts.
	Again = 10 * time.Second
)

// NewRing returns one that is empty. published, if not nil, is called for each event, also for repeats, under a lock.
func NewRing(published func(Kind)) *Ring {
	return newRing(Most, Again, time.Now, published)
}

func newRing(most int, again time.Duration, now func() time.Time, published func(Kind)) *Ring {
	if published == nil {
		published = func(Kind) {}
	}
	return &Ring{
		most: most, ofOne: max(most/10, 1), again: again, now: now, publish: published,
		last: uint64(now().UnixMilli()), // so that IDs grow over restarts
		all:  list.New(), kinds: make(map[Kind]*list.List), holders: make(map[string]*list.List),
		subjects: make(map[string]*subject), readers: make(map[*Reader]struct{}),
	}
}

// Publish takes in an event, as of now.
func (r *Ring) Publish(e Event) {
	if r == nil {
		return
	}
	e = e.bounded()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.publish(e.Kind)
	r.turn++
	e.Time = r.now()
	e.Times, e.First = 1, e.Time
	r.ripen(e.Time)
	if e.Subject == "" {
		r.tell(&entry{Event: e})
		return
	}
	s := r.subjects[e.Subject]
	if s == nil {
		s = &subject{name: e.Subject, entries: make(map[Kind]*entry)}
		r.subjects[e.Subject] = s
	}
	was := s.entries[e.Kind]
	if was != nil {
		e.Times, e.First, e.ID = was.Times+1, was.First, was.ID
		was.Event = e
		if e.Time.Sub(s.told) < r.again {
			was.untold, was.turn = true, r.turn
			r.wait(s, e.Time)
			return
		}
		r.remove(was)
	}
	r.settle(s) // so that events are told in their order
	r.tellOf(s, &entry{Event: e})
	s.told = e.Time
}

// wait has the repeats of a subject told later.
func (r *Ring) wait(s *subject, now time.Time) {
	if s.since.IsZero() {
		s.since = now
		r.waiting = append(r.waiting, s)
		if len(r.waiting) == 1 {
			r.wake() // readers must know when it is due
		}
	}
}

// ripen tells the repeats that are due.
func (r *Ring) ripen(now time.Time) {
	for len(r.waiting) > 0 && now.Sub(r.waiting[0].since) >= r.again {
		s := r.waiting[0]
		r.waiting = r.waiting[1:]
		s.since, s.told = time.Time{}, now
		r.settle(s)
	}
}

// settle tells the repeats of a subject that were not told, in their order.
func (r *Ring) settle(s *subject) {
	for {
		var first *entry
		for _, e := range s.entries {
			if e.untold && (first == nil || e.turn < first.turn) {
				first = e
			}
		}
		if first == nil {
			return
		}
		r.remove(first)
		r.tellOf(s, &entry{Event: first.Event})
	}
}

// tellOf tells an event that may be repeated.
func (r *Ring) tellOf(s *subject, e *entry) {
	r.subjects[s.name] = s // it may have had to go
	s.entries[e.Kind] = e
	r.tell(e)
}

// tell puts an event at the end, for readers.
func (r *Ring) tell(e *entry) {
	r.last++
	e.ID = r.last
	e.inAll = r.all.PushBack(e)
	kind := listOf(r.kinds, e.Kind)
	e.inKind = kind.PushBack(e)
	if e.Client != nil {
		e.holder = holderOf(e.Client)
		of := listOf(r.holders, e.holder)
		e.inHolder = of.PushBack(e)
		if of.Len() > r.ofOne {
			r.evict(of)
		}
	}
	if r.all.Len() > r.most {
		for _, l := range r.kinds {
			if l.Len() > kind.Len() {
				kind = l
			}
		}
		r.evict(kind)
	}
	r.wake()
}

func listOf[K comparable](lists map[K]*list.List, key K) *list.List {
	if lists[key] == nil {
		lists[key] = list.New()
	}
	return lists[key]
}

// holderOf is whose events a client's are.
func holderOf(c *Client) string {
	if c.Identity != "" {
		return c.Identity
	}
	if host, _, err := net.SplitHostPort(c.Peer); err == nil {
		return host
	}
	return c.Peer
}

// evict has the oldest event of a list go.
func (r *Ring) evict(from *list.List) {
	e := from.Front().Value.(*entry)
	r.remove(e)
	r.gone = max(r.gone, e.ID)
	for reader := range r.readers {
		if reader.at < e.ID {
			reader.lost++
		}
	}
}

// remove takes an event out of all lists.
func (r *Ring) remove(e *entry) {
	r.all.Remove(e.inAll)
	r.kinds[e.Kind].Remove(e.inKind)
	if e.inHolder != nil {
		of := r.holders[e.holder]
		if of.Remove(e.inHolder); of.Len() == 0 {
			delete(r.holders, e.holder)
		}
	}
	if s := r.subjects[e.Subject]; s != nil && s.entries[e.Kind] == e {
		if delete(s.entries, e.Kind); len(s.entries) == 0 {
			delete(r.subjects, e.Subject)
		}
	}
}

func (r *Ring) wake() {
	for reader := range r.readers {
		poke(reader.wake)
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
