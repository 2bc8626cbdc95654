package session

import (
	"iter"
	"slices"

	"github.com/xds-relay/xds-relay/cache"
)

// exact records by name and version what a client holds of some resources: what a returning Delta
// client came with, until that is judged, and what was noted of resources to which aliases may
// lead. There may be very many, and all are looked at under the lock of the type. So they are in
// one open-addressed table, which takes fewer cache misses than a map. The zero value is empty.
type exact struct {
	// table is at most three quarters full. An entry stands where its hash says, or in the first
	// free place behind that, until the table is rebuilt.
	table   []entry
	taken   int // used places
	toJudge int // entries that were brought and are not judged yet (holdings.judging)
	noted   int
}

// entry is the record of one resource. If brought is set, version is what the client came with;
// otherwise it is the version noted since. A noted entry without some says that the client has no
// version.
type entry struct {
	// version is "" if it is unknown, or if the resource must be sent whatever the client has.
	name, version string
	at            cache.Seq // of the response that carried what is noted; 0 if unknown
	hash          uint32    // 0 only if the place is free
	brought       bool      // the client came with it, and it is not judged yet
	noted, some   bool      // some: the client has a version
	// spared says that the response in the making leaves the resource out because the client has
	// it.
	spared bool
}

// bring takes in the versions of a first request.
func (e *exact) bring(versions map[string]string) {
	e.room(len(versions))
	for name, v := range versions {
		at := e.add(name)
		at.version, at.brought = v, true
	}
	e.toJudge = len(versions)
}

// room rebuilds the table without the entries that say nothing, and with room for so many more.
func (e *exact) room(more int) {
	old := e.table
	e.taken = 0
	for i := range old {
		if old[i].says() {
			e.taken++
		}
	}
	most := 2*e.taken + more // leaves room to grow before the next rebuild
	if most == 0 {
		*e = exact{}
		return
	}
	e.table = make([]entry, most*4/3+2)
	for i := range old {
		if v := &old[i]; v.says() {
			*e.place(v.hash, v.name) = *v
		}
	}
}

func (v *entry) says() bool { return v.brought || v.noted || v.spared }

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
	if len(e.table) == 0 {
		return nil
	}
	return e.lookUp(cache.HashOf(name), name)
}

// lookUp is find for a name whose hash is known.
func (e *exact) lookUp(hash uint32, name string) *entry {
	if len(e.table) == 0 {
		return nil
	}
	if v := e.place(hash, name); v.hash != 0 {
		return v
	}
	return nil
}

// add returns the entry of a name, and makes one if there is none.
func (e *exact) add(name string) *entry {
	if (e.taken+1)*4 > len(e.table)*3 {
		e.room(1)
	}
	hash := cache.HashOf(name)
	v := e.place(hash, name)
	if v.hash == 0 {
		v.name, v.hash = name, hash
		e.taken++
	}
	return v
}

// brings reports whether the client came with the resource and this is not judged yet.
func (v *entry) brings() bool { return v != nil && v.brought }

// notes reports whether something is noted, beside what the client came with.
func (v *entry) notes() bool { return v != nil && v.noted }

// has reports whether some version is noted.
func (v *entry) has() bool { return v.notes() && v.some }

// of returns what the client holds; exact is false if nothing is recorded.
func (v *entry) of() (version string, some, exact bool) {
	if !v.brings() && !v.notes() {
		return "", false, false
	}
	return v.version, v.brought || v.some, true
}

// only keeps the names of which something is recorded.
func (e *exact) only(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		_, _, exact := e.find(name).of()
		return !exact
	})
}

// note records what the client holds of a resource. The version that it came with takes
// precedence until it is judged.
func (e *exact) note(name, version string, some bool) { e.noteAt(e.add(name), version, some, 0) }

func (e *exact) noteAt(v *entry, version string, some bool, at cache.Seq) {
	if !v.noted {
		v.noted = true
		e.noted++
	}
	if v.some, v.at = some, at; !v.brought {
		v.version = version
	}
}

// sent notes that the client is sent a resource, in a response of this position, or 0 if that is
// unknown.
func (e *exact) sent(v *entry, version string, at cache.Seq) {
	if e.judge(v); v.notes() {
		e.noteAt(v, version, true, max(at, v.at))
	}
}

// judge notes that what the client came with no longer counts.
func (e *exact) judge(v *entry) {
	if !v.brings() {
		return
	}
	v.brought = false
	if e.toJudge--; !v.some {
		v.version = ""
	}
}

// recall counts what the client came with as if it had been sent on this stream.
func (e *exact) recall(v *entry) {
	e.noteAt(v, v.version, true, 0)
	e.judge(v)
}

// forget drops what was noted of a name.
func (e *exact) forget(name string) {
	if v := e.find(name); v.notes() {
		v.noted, v.some, v.at = false, false, 0
		if e.noted--; e.noted+e.toJudge == 0 {
			e.room(0)
		}
	}
}

// keep forgets all but some names.
func (e *exact) keep(names nameSet) {
	for v := range e.all(false) {
		if !names.has(v.name) {
			e.forget(v.name)
		}
	}
}

// judged shrinks the table, if much of it is free, when everything that the client came with is
// judged. Spared entries keep their place until unspare.
func (e *exact) judged() {
	spared := func(v entry) bool { return v.spared }
	if e.toJudge == 0 && e.noted*4 < len(e.table) && !slices.ContainsFunc(e.table, spared) {
		e.room(0)
	}
}

// unspare notes that the response is made for which some entries were spared.
func (e *exact) unspare() {
	for i := range e.table {
		e.table[i].spared = false
	}
	e.judged()
}

// void makes the version that the client came with of a name unknown, so that the resource is
// sent.
func (e *exact) void(name string) {
	if v := e.find(name); v.brings() {
		v.version = ""
	}
}

// voidAll does the same for everything that the client came with, or for the names that such
// accepts.
func (e *exact) voidAll(such func(name string) bool) {
	for v := range e.all(true) {
		if such == nil || such(v.name) {
			v.version = ""
		}
	}
}

// all yields the entries, or only those that were brought and are not judged. An entry that is
// added meanwhile may not be yielded.
func (e *exact) all(brought bool) iter.Seq[*entry] {
	table := e.table
	return func(yield func(*entry) bool) {
		for i := range table {
			v := &table[i]
			if made := len(e.table) == 0 || &e.table[0] != &table[0]; made && v.hash != 0 { // it was made again
				v = e.find(v.name)
			}
			among := v.brings() || !brought && v.notes()
			if among && !yield(v) {
				return
			}
		}
	}
}
