package fanout

import (
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// shelf is what was loaded from disk although nobody wanted it any more when it was saved (RECON-19). The
// relay subscribes to none of it. A client that asks for some of it while upstream is away is sent
// that as restored. When upstream is there, it knows better, and the shelf is emptied.
type shelf struct {
	x     *index
	names map[string][]shelved // by each of the names that they were saved for
	// set is the wildcard's, and members are its resources by name.
	set     *Saved
	members map[string]cache.Held
}

// shelved is a resource on the shelf.
type shelved struct {
	cache.Held
	asOf time.Time
}

func (s *shelf) empty() bool { return s.set == nil && len(s.names) == 0 }

func (s *shelf) clear() { s.names, s.set, s.members = nil, nil, nil }

// add puts what was saved of a lane on the shelf.
func (s *shelf) add(lane Saved) {
	if lane.Lane.Wildcard {
		s.set, s.members = &lane, make(map[string]cache.Held, len(lane.Resources))
		for _, r := range lane.Resources {
			s.members[r.Name] = r
		}
		return
	}
	if s.names == nil {
		s.names = make(map[string][]shelved, len(lane.Names))
	}
	for _, name := range lane.Names {
		s.names[name] = nil
	}
	for _, r := range lane.Resources {
		for name := range r.Names() {
			if _, saved := s.names[name]; saved {
				s.names[name] = append(s.names[name], shelved{r, lane.AsOf})
			}
		}
	}
}

// serve restores what a name led to that a client asks for and of which nothing is known. The name may
// have been a member of the wildcard's set alone.
func (s *shelf) serve(id cache.ID, name string, now time.Time) {
	if s.empty() || s.x.answers.of(id).State != cache.Unknown {
		return
	}
	found, here := s.names[name]
	delete(s.names, name)
	if r, member := s.members[name]; !here && member {
		found = append(found, shelved{r, s.set.AsOf})
	}
	for _, r := range found {
		if s.x.named.Has(r.Name) {
			continue // another of its names was asked for before
		}
		r.Announced = false // the stream that asks for it shows no version of it
		touched := s.x.named.take(r.Held, now)
		s.x.named.Restore(r.Name, r.asOf)
		s.x.markNamed(slices.DeleteFunc(touched, func(of cache.ID) bool { return of == id }))
	}
}

// serveSet restores the wildcard's set, if nothing is known of it.
func (s *shelf) serveSet(now time.Time) {
	w := &s.x.wildcard
	if s.set == nil || w.synced || w.Len() > 0 {
		return
	}
	for _, r := range s.set.Resources {
		r.Announced = false
		w.take(r, now)
		s.x.markFallback(r.Name)
	}
	w.synced, w.restored, w.asOf = true, true, s.set.AsOf
	s.set, s.members = nil, nil
}

// Shelve takes in what another Hub has given up. It is served to clients that ask for it until upstream
// is there; until then nobody wants it.
func (d Disk) Shelve(lanes []Saved) {
	for _, s := range lanes {
		x := d.hub.types.of(d.hub, s.Lane.Type)
		x.mu.Lock()
		x.shelf.add(s)
		x.mu.Unlock()
	}
}

// unshelve empties the shelves, since upstream is there.
func (h *Hub) unshelve() {
	for _, x := range h.types.all() {
		x.mu.Lock()
		had := !x.shelf.empty()
		x.shelf.clear()
		x.mu.Unlock()
		if had {
			h.types.drop(x.url)
		}
	}
}
