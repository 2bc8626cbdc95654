package session

import (
	"hash/maphash"
	"iter"
)

// brought are the versions that a returning Delta client came with, until each is judged. There
// may be very many, and all of them are looked at under the lock of the type: so each is looked
// up once, and noted where it stands. That is in one place of a table, where a map leads from
// place to place, each of which the processor waits for. nil: none.
type brought struct {
	// table is at most three quarters full. A name stands where its hash says, or in the first
	// free place behind that.
	table []version
	left  int // how many are not judged yet
}

// version is one of them; "": it spares the client nothing.
type version struct {
	name, version string
	hash          uint32
	used          bool // the place is not free
	judged        bool
	// spared: the client is not sent the resource for its sake, in the response that is being made.
	spared bool
}

// hashSeed is not known to clients, whose names would else share a place.
var hashSeed = maphash.MakeSeed()

// bring takes in the versions of a first request.
func bring(versions map[string]string) *brought {
	size := 2
	for size*3 < len(versions)*4 {
		size *= 2
	}
	b := &brought{table: make([]version, size), left: len(versions)}
	for name, v := range versions {
		at, hash := b.place(name)
		*at = version{name: name, version: v, hash: hash, used: true}
	}
	return b
}

// place is where a name stands, or would.
func (b *brought) place(name string) (*version, uint32) {
	full := maphash.String(hashSeed, name)
	hash, last := uint32(full>>32), uint64(len(b.table)-1)
	for i := full & last; ; i = (i + 1) & last {
		if v := &b.table[i]; !v.used || v.hash == hash && v.name == name {
			return v, hash
		}
	}
}

// find is the version of a name, judged or not; nil: the client came with none.
func (b *brought) find(name string) *version {
	if b == nil {
		return nil
	}
	if v, _ := b.place(name); v.used {
		return v
	}
	return nil
}

// has: the client came with a version of a name that is not judged yet.
func (b *brought) has(name string) bool {
	v := b.find(name)
	return v != nil && !v.judged
}

// judge notes that the version of a name counts no more, if there is one.
func (b *brought) judge(name string) {
	if v := b.find(name); v != nil {
		b.judged(v)
	}
}

func (b *brought) judged(v *version) {
	if !v.judged {
		v.judged = true
		b.left--
	}
}

// spare notes that the client is not sent a resource for the sake of its version, until told
// that the response is made.
func (b *brought) spare(name string, spared bool) {
	if v := b.find(name); v != nil {
		v.spared = spared
	}
}

func (b *brought) spared(name string) bool {
	v := b.find(name)
	return v != nil && v.spared
}

// judgeAll does so with several.
func (b *brought) judgeAll(names []string) {
	if b == nil {
		return
	}
	for _, name := range names {
		b.judge(name)
	}
}

// void has the version of a name spare the client nothing.
func (b *brought) void(name string) {
	if v := b.find(name); v != nil {
		v.version = ""
	}
}

// voidAll does so with all of them, or with those that are such.
func (b *brought) voidAll(such func(name string) bool) {
	if b == nil {
		return
	}
	for i := range b.table {
		if v := &b.table[i]; v.used && (such == nil || such(v.name)) {
			v.version = ""
		}
	}
}

// len is how many are not judged yet.
func (b *brought) len() int {
	if b == nil {
		return 0
	}
	return b.left
}

// names are those of them.
func (b *brought) names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range b.table {
			if v := &b.table[i]; v.used && !v.judged && !yield(v.name) {
				return
			}
		}
	}
}

// versions are those of them by name, as a client brings them.
func (b *brought) versions() map[string]string {
	if b == nil {
		return nil
	}
	versions := make(map[string]string, b.left)
	for name := range b.names() {
		versions[name] = b.find(name).version
	}
	return versions
}
