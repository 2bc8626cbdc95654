package fanout

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// Subscription is one client's interest in one type on one stream: the names that it asked for, and
// the wildcard with its legacy forms (protocol.md §5).
type Subscription struct {
	// Set once.
	index      *index
	subscriber *Subscriber
	number     uint64

	// Guarded by index.mu.
	names NameList
	// sum is the digest of the resources that bear these names (digest.go), if summed.
	sum      cache.Digest
	summed   bool
	wildcard bool
	mode     mode
	sotw     bool      // aliases are not for it (NAME-3)
	reads    bool      // it is a reader of the wildcard's set (readers.go),
	passed   cache.Seq // and has been sent the removals up to here
	closed   bool
	returns  bool // the client came with versions
	withheld bool // something is withheld from it because it is in doubt (certainty.go)

	// Guarded by subscriber.mu.
	marks Marks
	dirty bool // it is in subscriber.dirty
}

// mode is what the requests of a type so far mean for the next ones (§5).
type mode uint8

const (
	fresh    mode = iota // no request yet
	legacy               // the wildcard, and nothing was ever named
	explicit             // something was named, or the wildcard given up
)

// Subscribe opens a client's interest in a type. It is empty until the first Delta or Replace.
func (h *Hub) Subscribe(t cache.TypeURL, m *Subscriber) *Subscription {
	for {
		x := h.types.of(h, t)
		x.mu.Lock()
		if !x.dropped {
			s := &Subscription{index: x, subscriber: m, number: x.interest.open(m.Holder)}
			x.mu.Unlock()
			return s
		}
		x.mu.Unlock() // dropped between the two steps; there is a new one
	}
}

// Returns notes that the client came with versions.
func (s *Subscription) Returns() {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	s.returns = true
}

// Asked is what one request asks for.
type Asked struct {
	// Names have to be answered, even if they were answered before (DOWN-DELTA-7, DOWN-SOTW-5).
	Names []cache.ID
	// New are those of Names that were not subscribed before; only for Delta, since a SotW request
	// asks for no others.
	New []string
	// Unasked is how many of Names upstream has to be asked for.
	Unasked int
	// Wildcard: the whole set has to be sent (rows a, c, e, j, n, t).
	Wildcard bool
	// Left are the names that were given up while the wildcard stays. The client has what bears them by
	// name, so each has to be sent again as a member, or removed (row l, WILD-8).
	Left []string
	Gone []string // the names that were given up and led to nothing; only for Delta
}

// Delta applies the two lists of one Delta request: subscribes first, then unsubscribes
// (DOWN-DELTA-5). The rows are those of the WILD table, a to n.
func (s *Subscription) Delta(subscribe, unsubscribe []string, now time.Time) Asked {
	x := s.index
	defer x.hub.wanted.notify() // after the lock is released
	var asked Asked
	if len(subscribe) > 0 {
		asked.Names, asked.New = make([]cache.ID, 0, len(subscribe)), make([]string, 0, len(subscribe))
	}
	ends := slices.Contains(unsubscribe, Wildcard)
	inParts(x, subscribe, func(names []string) {
		if s.mode == fresh {
			s.mode = explicit // rows b, c, d, f
			if len(names) == 0 && x.hub.Properties(x.url).EmptyIsWildcard {
				s.mode = legacy // rows a, e
				s.startWildcard(&asked, now)
			}
		}
		s.adds(names, &asked, now)
	})
	s.fits(len(subscribe))
	if len(unsubscribe) > 0 {
		inParts(x, unsubscribe, func(names []string) { s.gives(names, s.wildcard && !ends, &asked, now) })
	}
	return asked
}

// fits gives back the memory that is left over from adding so many names in parts.
func (s *Subscription) fits(names int) {
	if names > s.index.hub.config.Bounds.Part {
		s.index.change(func(*index) { s.names = NameList{ids: slices.Clone(s.names.ids), told: slices.Clone(s.names.told)} })
	}
}

// adds adds the names of a Delta request.
func (s *Subscription) adds(names []string, asked *Asked, now time.Time) {
	var run cache.Run
	had := len(asked.Names)
	for _, name := range names {
		if name == Wildcard {
			s.mode = explicit
			s.startWildcard(asked, now) // rows c, j, n
			continue
		}
		id := s.index.wantName(s, name, &run, asked, now) // rows d, h
		if _, had := s.names.place(id); !had {
			asked.New = append(asked.New, name)
		}
	}
	s.summed = !s.names.add(asked.Names[had:]) && s.summed
}

// gives gives up the names of a Delta request. stays: the wildcard stays.
func (s *Subscription) gives(names []string, stays bool, asked *Asked, now time.Time) {
	x := s.index
	gone := make([]cache.ID, 0, len(names))
	var run cache.Run
	for _, name := range names {
		if name == Wildcard {
			s.mode = explicit // rows f, i, k
			s.endWildcard(asked, now)
			continue
		}
		id, ok := x.named.FindNext(&run, name)
		if !ok || !x.unwant(s, id, now) {
			continue // DOWN-DELTA-17
		}
		gone = append(gone, id)
		if x.answers.of(id).State == cache.Absent {
			asked.Gone = append(asked.Gone, name)
		}
		if stays {
			asked.Left = append(asked.Left, name) // row l; row m drops nothing
		}
	}
	s.drop(gone)
}

// Names is one SotW request, which replaces the whole interest (DOWN-SOTW-2), as the difference
// from the one before it.
type Names struct {
	Some     bool     // it names something, possibly the wildcard
	Wildcard bool     // it names the wildcard
	Added    []string // names that the request before it did not have, in order
	Gone     []string // names that only the request before it had; neither list has the wildcard
}

// Explicit says before the first Delta that a request for nothing does not ask for everything (row b).
func (s *Subscription) Explicit() {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	s.mode = explicit
}

// Replace applies the names of one SotW request. The rows are those of the WILD table, a to d and o
// to t.
func (s *Subscription) Replace(names Names, now time.Time) Asked {
	x := s.index
	defer x.hub.wanted.notify() // after the lock is released
	var asked Asked
	inParts(x, names.Added, func(added []string) {
		s.sotw = true
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
			s.startWildcard(&asked, now)
		} else if !wildcard {
			s.endWildcard(&asked, now)
		}
		var run cache.Run
		had := len(asked.Names)
		for _, name := range added {
			x.wantName(s, name, &run, &asked, now)
		}
		s.summed = !s.names.add(asked.Names[had:]) && s.summed
	})
	s.fits(len(names.Added))
	asked.Names = distinct(asked.Names)
	if len(names.Gone) > 0 {
		inParts(x, names.Gone, func(given []string) {
			gone := make([]cache.ID, 0, len(given))
			for _, name := range given {
				if id, ok := x.named.Find(name); ok && x.unwant(s, id, now) {
					gone = append(gone, id)
				}
			}
			s.drop(gone)
		})
	}
	return asked
}

// drop drops what is known of names that the client has given up.
func (s *Subscription) drop(gone []cache.ID) {
	if len(gone) > 0 {
		s.summed = false
		s.names.remove(distinct(gone))
	}
}

// Close ends the interest. Names that only this client wanted linger.
func (s *Subscription) Close(now time.Time) {
	x := s.index
	defer x.hub.types.drop(x.url) // if nothing else needs it
	defer x.hub.wanted.notify()   // after the lock is released
	inParts(x, s.names.ids, func(ids []cache.ID) {
		for _, id := range ids {
			x.unwant(s, id, now)
		}
	})
	x.change(func(*index) {
		if s.closed {
			return
		}
		s.closed = true
		x.interest.close(s.subscriber.Holder)
		s.names = NameList{}
		s.summed = false
		s.view().Withhold(false)
		s.endWildcard(&Asked{}, now)
	})
}

func (s *Subscription) startWildcard(asked *Asked, now time.Time) {
	asked.Wildcard = true
	if !s.wildcard {
		s.wildcard = true
		s.index.wildcard.pinned = true
		if s.index.want(s, wildcardID) {
			s.index.shelf.serveSet(now)
		}
	}
}

func (s *Subscription) endWildcard(asked *Asked, now time.Time) {
	asked.Wildcard = false
	if s.wildcard {
		s.wildcard, s.reads = false, false
		s.index.unwant(s, wildcardID, now)
		s.index.readers.prune()
	}
}
