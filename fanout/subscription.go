package fanout

import (
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Subscription is one client's interest in one type on one stream: the names it
// asked for, and the wildcard with all its legacy (protocol.md §5).
type Subscription struct {
	// Set once.
	index      *index
	subscriber *Subscriber
	number     uint64

	// Guarded by index.mu.
	ids  []cache.ID // ascending
	told []Told     // of each (told.go)
	led  [][]string // of each, or nil: of none (told.go)
	last int        // the place in ids that was last looked at
	// sum is the digest of what bears these names (digest.go), if summed.
	sum      cache.Digest
	summed   bool
	wildcard bool
	mode     mode
	reads    bool      // it is told what goes from the wildcard's set (readers.go),
	passed   cache.Seq // and has been up to here
	closed   bool
	outage   bool // it is to be marked when upstream answers again (ERR-7)
	withheld bool // something is not said to it, because it is in doubt (verdict.go)
	// By resource: bodies on their way to the client, and those that upstream was
	// asked for once more on its behalf (parcel.go).
	parcels map[string]parcel
	awaited map[string]struct{}

	// Guarded by subscriber.mu.
	marks Marks
	dirty bool // it is in subscriber.dirty
}

// mode is what a type's requests so far have made of the stream (§5).
type mode uint8

const (
	fresh    mode = iota // no request yet
	legacy               // wildcard without ever having named anything
	explicit             // has named something, or given the wildcard up
)

// Subscribe opens a client's interest in a type. It is empty until the first
// Delta or Replace.
func (h *Hub) Subscribe(t cache.TypeURL, m *Subscriber) *Subscription {
	for {
		x := h.types.of(h, t)
		x.mu.Lock()
		if !x.dropped {
			s := &Subscription{index: x, subscriber: m, number: x.interest.open()}
			x.mu.Unlock()
			return s
		}
		x.mu.Unlock() // dropped between the two steps; there is a new one
	}
}

// Asked is what one request asks to be told.
type Asked struct {
	// Names are to be answered, even if they were before (DOWN-DELTA-7,
	// DOWN-SOTW-5).
	Names []cache.ID
	// New are those of them that were not subscribed before; Delta only, since SotW
	// asks for no others.
	New []string
	// Wildcard: the whole set is to be told (rows a, c, e, j, n, t).
	Wildcard bool
	// Left are names given up while the wildcard stays, and the members that go by
	// them, of which a client that has the name is not told as such: each, and what it
	// led to, is to be told again as what it is to the wildcard (row l, WILD-8).
	Left []string
	// Freed are names that may lead elsewhere now, since others were given up (WILD-16).
	Freed []cache.ID
}

// Delta takes in the two lists of one Delta request: subscribes first, then
// unsubscribes (DOWN-DELTA-5). Rows a to n of the WILD table.
func (s *Subscription) Delta(subscribe, unsubscribe []string, now time.Time) Asked {
	x := s.index
	defer x.hub.wanted.notify() // after the lock is released
	x.mu.Lock()
	defer x.mu.Unlock()
	var asked Asked
	if s.mode == fresh {
		s.mode = explicit // rows b, c, d, f
		if len(subscribe) == 0 && x.hub.Properties(x.url).EmptyIsWildcard {
			s.mode = legacy // rows a, e
			s.startWildcard(&asked)
		}
	}
	if len(subscribe) > 0 {
		asked.Names, asked.New = make([]cache.ID, 0, len(subscribe)), make([]string, 0, len(subscribe))
	}
	var run cache.Run
	for _, name := range subscribe {
		if name == Wildcard {
			s.mode = explicit
			s.startWildcard(&asked) // rows c, j, n
			continue
		}
		id := x.want(s, name, &run)
		asked.Names = append(asked.Names, id) // rows d, h
		if _, had := s.place(id); !had {
			asked.New = append(asked.New, name)
		}
	}
	s.subscribe(asked.Names)
	had := s.wildcard
	drops := dropping{of: s}
	for _, name := range unsubscribe {
		if name == Wildcard {
			s.mode = explicit // rows f, i, k
			s.endWildcard(&asked, now)
		} else if drops.drop(name, now) && had {
			asked.Left = append(asked.Left, name) // row l; row m drops nothing
			if id, ok := x.wildcard.Find(name); ok {
				for _, r := range x.wildcard.Answer(id).Resources() {
					asked.Left = append(asked.Left, r.Name)
				}
			}
		}
	}
	drops.done()
	asked.Freed = x.loans.freed(s, drops.ids)
	if !s.wildcard {
		asked.Left = nil
	}
	return asked
}

// Names are those of one SotW request, which are the whole interest from now on
// (DOWN-SOTW-2), as what has become of those of the request before.
type Names struct {
	Some     bool     // it names something, be it the wildcard
	Wildcard bool     // it names that
	Added    []string // names that the one before it did not have, in order,
	Gone     []string // and names that it had alone; neither has the wildcard
}

// Replace takes in the names of one SotW request. Rows a to d and o to t of the WILD table.
func (s *Subscription) Replace(names Names, now time.Time) Asked {
	x := s.index
	defer x.hub.wanted.notify() // after the lock is released
	x.mu.Lock()
	defer x.mu.Unlock()
	var asked Asked
	switch {
	case names.Some:
		s.mode = explicit // rows c, d, p, q
	case s.mode == fresh && x.hub.Properties(x.url).EmptyIsWildcard:
		s.mode = legacy // row a
	case s.mode == fresh:
		s.mode = explicit // row b
	}
	wildcard := names.Wildcard || s.mode == legacy // row o; row s is neither
	if wildcard && !s.wildcard {
		s.startWildcard(&asked)
	} else if !wildcard {
		s.endWildcard(&asked, now)
	}

	var run cache.Run
	for _, name := range names.Added {
		asked.Names = append(asked.Names, x.want(s, name, &run))
	}
	asked.Names = distinct(asked.Names)
	gone := make([]cache.ID, 0, len(names.Gone))
	for _, name := range names.Gone {
		if id, ok := (View{s, x}).Lookup(name); ok {
			gone = append(gone, id)
		}
	}
	gone = distinct(gone)
	if out := gone; len(out) > 0 {
		s.keep(func(at int) bool {
			leaves := len(out) > 0 && out[0] == s.ids[at]
			if leaves {
				out = out[1:]
			}
			return !leaves
		})
	}
	s.subscribe(asked.Names)
	for _, id := range gone {
		// What the client has by this name may not be what the wildcard has.
		asked.Wildcard = asked.Wildcard || s.wildcard && x.answers.differs(id)
		delete(s.awaited, x.named.Name(id))
		x.unwant(s, id, now)
	}
	asked.Freed = x.loans.freed(s, gone)
	return asked
}

// Close ends the interest; names that only this client wanted linger.
func (s *Subscription) Close(now time.Time) {
	x := s.index
	defer x.hub.types.drop(x.url) // if there is nothing left of it
	defer x.hub.wanted.notify()   // after the lock is released
	x.mu.Lock()
	defer x.mu.Unlock()
	if !s.closed {
		s.closed = true
		x.interest.subscriptions--
		for _, id := range s.ids {
			x.unwant(s, id, now)
		}
		s.ids, s.told, s.led, s.parcels, s.awaited = nil, nil, nil, nil, nil
		s.unsum()
		x.interest.withhold(s, false)
		s.endWildcard(&Asked{}, now)
	}
}

func (s *Subscription) startWildcard(asked *Asked) {
	asked.Wildcard = true
	if !s.wildcard {
		s.wildcard = true
		s.index.wantWildcard(s)
	}
}

func (s *Subscription) endWildcard(asked *Asked, now time.Time) {
	asked.Wildcard = false
	if s.wildcard {
		s.wildcard, s.reads = false, false
		s.index.unwantWildcard(s, now)
	}
}

// dropping takes names out of a Subscription, of which there may be very many: its list is
// rebuilt once.
type dropping struct {
	of   *Subscription
	gone []bool     // by place in the list; nil: none
	ids  []cache.ID // if the wildcard's set has aliases
	run  cache.Run
}

// drop takes a name out; false: the client does not subscribe to it (any more).
func (d *dropping) drop(name string, now time.Time) bool {
	s := d.of
	id, ok := s.index.named.FindNext(&d.run, name)
	if !ok {
		return false // DOWN-DELTA-17
	}
	i, found := s.place(id)
	if !found || d.gone != nil && d.gone[i] {
		return false
	}
	if d.gone == nil {
		d.gone = make([]bool, len(s.ids))
	}
	d.gone[i] = true
	if s.index.wildcard.Aliased() > 0 {
		d.ids = append(d.ids, id)
	}
	delete(s.awaited, name)
	s.index.unwant(s, id, now)
	return true
}

func (d *dropping) done() {
	if d.gone == nil {
		return
	}
	d.of.keep(func(at int) bool { return !d.gone[at] })
}
