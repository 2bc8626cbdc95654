package session

import (
	"hash/maphash"
	"iter"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// exact is what a client holds of some resources, by name and version: what a returning Delta
// client came with, until that is judged, and what was noted of resources to which aliases may
// lead. There may be very many, and all of them are looked at under the lock of the type. So they
// are in one table, where each is found with few steps, and marked where it stands; a map would
// lead from place to place, and the processor wait for each. The zero value is empty.
type exact struct {
	// table is at most three quarters full. A name stands where its hash says, or in the first
	// free place behind that, and keeps its place until the table is made again.
	table []entry
	taken int // places
	left  int // how many were brought and are not judged yet
	noted int
}

// entry is what is written down of one resource: until that is judged, the version that the
// client came with (brought); after that the version noted since, or with some unset that it has
// none (noted).
type entry struct {
	// version: "" if nobody knows which, or if it spares the client nothing.
	name, version string
	at            cache.Seq // of the response that brought what is noted; 0: nobody knows
	hash          uint32    // never 0, unless the place is free
	brought       bool      // the client came with it, and that is not judged yet
	noted, some   bool      // some: it has a version
	// spared: the client is not sent the resource for its sake, in the response that is being made.
	spared bool
}

// hashSeed is not known to clients, whose names would else share a place.
var hashSeed = maphash.MakeSeed()

// bring takes in the versions of a first request.
func (e *exact) bring(versions map[string]string) {
	e.room(len(versions))
	for name, v := range versions {
		at := e.add(name)
		at.version, at.brought = v, true
	}
	e.left = len(versions)
}

// room makes the table again: what says nothing leaves it, and so many more fit in.
func (e *exact) room(more int) {
	old := e.table
	e.taken = 0
	for i := range old {
		if old[i].says() {
			e.taken++
		}
	}
	most, size := 2*e.taken+more, 2 // so that it is some time before it has to be made again
	if most == 0 {
		*e = exact{}
		return
	}
	for size*3 < most*4 {
		size *= 2
	}
	e.table = make([]entry, size)
	for i := range old {
		if v := &old[i]; v.says() {
			*e.place(v.hash, v.name) = *v
		}
	}
}

func (v *entry) says() bool { return v.brought || v.noted || v.spared }

func hashOf(name string) uint32 { return uint32(maphash.String(hashSeed, name)) | 1 }

// place is where a name stands, or would.
func (e *exact) place(hash uint32, name string) *entry {
	last := uint32(len(e.table) - 1)
	for i := (hash >> 1) & last; ; i = (i + 1) & last {
		if v := &e.table[i]; v.hash == 0 || v.hash == hash && v.name == name {
			return v
		}
	}
}

// find is the place of a name; nil: it has none.
func (e *exact) find(name string) *entry {
	if len(e.table) == 0 {
		return nil
	}
	if v := e.place(hashOf(name), name); v.hash != 0 {
		return v
	}
	return nil
}

// add is the place of a name, which it is given if it has none.
func (e *exact) add(name string) *entry {
	if (e.taken+1)*4 > len(e.table)*3 {
		e.room(1)
	}
	hash := hashOf(name)
	v := e.place(hash, name)
	if v.hash == 0 {
		v.name, v.hash = name, hash
		e.taken++
	}
	return v
}

// brings: the client came with it, and that is not judged yet.
func (v *entry) brings() bool { return v != nil && v.brought }

// of is what the client holds; exact is false if that is not written down.
func (v *entry) of() (version string, some, exact bool) {
	if v == nil || !v.brought && !v.noted {
		return "", false, false
	}
	return v.version, v.brought || v.some, true
}

// notes: something is noted of a name, beside what the client came with.
func (e *exact) notes(name string) bool {
	v := e.find(name)
	return v != nil && v.noted
}

// has: some version of a resource is noted.
func (e *exact) has(name string) bool {
	v := e.find(name)
	return v != nil && v.noted && v.some
}

// only keeps those of some names of which something is written down.
func (e *exact) only(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		_, _, exact := e.find(name).of()
		return !exact
	})
}

// note writes down what the client holds of a resource. What it came with stands before that
// until it is judged.
func (e *exact) note(name, version string, some bool) { e.noteAt(e.add(name), version, some) }

func (e *exact) noteAt(v *entry, version string, some bool) {
	if !v.noted {
		v.noted = true
		e.noted++
	}
	if v.some, v.at = some, 0; !v.brought {
		v.version = version
	}
}

// sent takes in that the client is sent a resource, in a response of this position if it is known.
func (e *exact) sent(v *entry, version string, at cache.Seq) {
	if v == nil {
		return
	}
	if e.judge(v); v.noted {
		e.hasAt(v, version, max(at, v.at))
	}
}

func (e *exact) hasAt(v *entry, version string, at cache.Seq) {
	e.noteAt(v, version, true)
	v.at = at
}

// judge notes that what the client came with counts no more, if it came with it.
func (e *exact) judge(v *entry) {
	if !v.brings() {
		return
	}
	v.brought = false
	if e.left--; !v.some {
		v.version = ""
	}
}

// forget drops what was noted of a name.
func (e *exact) forget(name string) {
	if v := e.find(name); v != nil && v.noted {
		v.noted, v.some, v.at = false, false, 0
		if e.noted--; e.noted+e.left == 0 {
			e.room(0)
		}
	}
}

// keep forgets all but some names.
func (e *exact) keep(names nameSet) {
	if len(names)+e.left == 0 {
		*e = exact{}
	}
	for v := range e.all(false) {
		if !names.has(v.name) {
			e.forget(v.name)
		}
	}
}

// judged ends the judging of what the client came with, all of which is. What is spared keeps its
// place until unspare.
func (e *exact) judged() {
	spared := func(v entry) bool { return v.spared }
	if e.left == 0 && e.noted*4 < len(e.table) && !slices.ContainsFunc(e.table, spared) {
		e.room(0)
	}
}

// unspare notes that the response is made for which some were spared.
func (e *exact) unspare() {
	for i := range e.table {
		e.table[i].spared = false
	}
	e.judged()
}

// void has what the client came with of a name spare it nothing.
func (e *exact) void(name string) {
	if v := e.find(name); v.brings() {
		v.version = ""
	}
}

// voidAll does so with all that it came with, or with those that are such.
func (e *exact) voidAll(such func(name string) bool) {
	for v := range e.all(true) {
		if such == nil || such(v.name) {
			v.version = ""
		}
	}
}

// all yields what is written down, or only what was brought and is not judged. What is written
// down meanwhile is not yielded for certain.
func (e *exact) all(brought bool) iter.Seq[*entry] {
	table := e.table
	return func(yield func(*entry) bool) {
		for i := range table {
			v := &table[i]
			if v.hash != 0 && (len(e.table) == 0 || &e.table[0] != &table[0]) { // it was made again
				v = e.find(v.name)
			}
			if v != nil && (v.brought || v.noted && !brought) && !yield(v) {
				return
			}
		}
	}
}
