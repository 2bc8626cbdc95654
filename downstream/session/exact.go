package session

import (
	"iter"

	"github.com/xds-relay/xds-relay/cache"
)

// exact is the record of an exact client: each resource that it holds, by name. There may be very many, and all are
// looked at under the lock of the type, so they are in one open-addressed table, which takes fewer cache misses than a
// map. The zero value is empty, and nil is that of a plain client.
type exact struct {
	// table is at most three quarters full. An entry stands where its hash says, or in the first
	// free place behind that, until the table is rebuilt.
	table []entry
	taken int // used places, those of removed entries included
	count int // entries
	// claims counts the entries that are claimed.
	claims int
	shared *claims // whose table it is; nil: the client's own
}

// entry is a resource that the client holds.
type entry struct {
	name    string
	version string    // "": some version that nobody knows
	at      cache.Seq // of the response that carried it; 0 if unknown
	hash    uint32    // 0 only if the place is free
	held    bool      // if not, the entry was removed, and keeps its place
	// claimed says that the client came with it (initial_resource_versions), and that this is not
	// reconciled with what there is.
	claimed bool
	brought bool // the same, whether or not it is reconciled, until it is sent
	looked  bool // it was looked at as a member, just before everything is (unlooked)
}

// claim takes in the versions of a first request.
func (e *exact) claim(versions map[string]string) {
	e.room(len(versions))
	for name, version := range versions {
		v := e.put(name, version, 0)
		v.claimed, v.brought = true, true
	}
	e.claims = len(versions)
}

// room rebuilds the table without the removed entries, and with room for so many more.
func (e *exact) room(more int) {
	old := e.table
	e.shared = nil
	e.taken = e.count
	most := e.taken + e.taken/2 + more // leaves room to grow before the next rebuild
	e.table = make([]entry, most*4/3+2)
	for i := range old {
		if v := &old[i]; v.held {
			*e.place(v.hash, v.name) = *v
		}
	}
}

// place returns where the entry of a name is, or would be.
func (e *exact) place(hash uint32, name string) *entry {
	for i := uint64(hash) * uint64(len(e.table)) >> 32; ; i++ {
		if i == uint64(len(e.table)) {
			i = 0
		}
		if v := &e.table[i]; v.hash == 0 || v.hash == hash && v.name == name {
			return v
		}
	}
}

// find returns the entry of a name, or nil.
func (e *exact) find(name string) *entry {
	if e == nil || e.count == 0 {
		return nil
	}
	return e.lookUp(cache.HashOf(name), name)
}

// lookUp is find for a name whose hash is known.
func (e *exact) lookUp(hash uint32, name string) *entry {
	if e == nil || e.count == 0 {
		return nil
	}
	if v := e.place(hash, name); v.held {
		return v
	}
	return nil
}

// put records that the client holds a version of a resource, which a response at a position carried. It is claimed no longer.
func (e *exact) put(name, version string, at cache.Seq) *entry {
	e.own(nil)
	if (e.taken+1)*4 > len(e.table)*3 {
		e.room(1)
	}
	hash := cache.HashOf(name)
	v := e.place(hash, name)
	if v.hash == 0 {
		e.taken++
	}
	if !v.held {
		e.count++
	}
	e.unclaim(v)
	*v = entry{name: name, version: version, at: at, hash: hash, held: true}
	return v
}

// remove records that the client does not hold a resource.
func (e *exact) remove(name string) {
	if v := e.find(name); v != nil {
		v = e.unclaim(e.own(v))
		v.held, v.version = false, ""
		e.count--
	}
}

// unknown records that nobody knows in which version the client holds a resource, if it holds it.
func (e *exact) unknown(name string) {
	if v := e.find(name); v != nil {
		e.own(v).version = ""
	}
}

// unclaim notes that an entry counts like any other, although the client came with it, and returns where it is now.
func (e *exact) unclaim(v *entry) *entry {
	if v.claims() {
		v = e.own(v)
		v.claimed = false
		e.claims--
	}
	return v
}

// agree notes that the client came with an entry as it was at a position.
func (e *exact) agree(v *entry, at cache.Seq) { e.unclaim(e.own(v)).at = at }

// disclaim notes that an entry counts as if the client had been sent it.
func (e *exact) disclaim(v *entry) {
	if v = e.unclaim(v); v != nil && v.brought {
		e.own(v).brought = false
	}
}

// looked notes that what is held of a resource was looked at, so that unlooked leaves it out.
func (e *exact) looked(r *cache.Resource) {
	if v := e.own(e.lookUp(r.Hash, r.Name)); v != nil {
		v.looked = true
	}
}

// unlooked returns the names of the others, and forgets which were looked at.
func (e *exact) unlooked() (names []string) {
	for v := range e.all() {
		if v.looked {
			e.own(v).looked = false
			continue
		}
		names = append(names, v.name)
	}
	return names
}

// open reports whether some claims are not reconciled.
func (e *exact) open() bool { return e != nil && e.claims > 0 }

// claims reports whether the client came with the resource and this is not reconciled.
func (v *entry) claims() bool { return v != nil && v.claimed }

// all yields the entries. One that is added meanwhile may not be yielded.
func (e *exact) all() iter.Seq[*entry] {
	if e == nil {
		return func(func(*entry) bool) {}
	}
	table := e.table
	return func(yield func(*entry) bool) {
		for i := range table {
			v := &table[i]
			if made := &e.table[0] != &table[0]; made && v.hash != 0 { // it was made again
				v = e.find(v.name)
			}
			if v != nil && v.held && !yield(v) {
				return
			}
		}
	}
}
