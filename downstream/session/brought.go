package session

import (
	"iter"

	"github.com/xds-relay/xds-relay/cache"
)

// brought are the versions that a returning Delta client came with, until each is judged. There
// may be very many, and all of them are looked at under the lock of the type: so each is looked
// up once, and noted where it stands. nil: none.
type brought struct {
	at   map[string]int // by name, the place in all
	all  []version
	left int // how many are not judged yet
}

// version is one of them.
type version struct {
	name, version string
	judged        bool
	// spared is the resource that is not sent for its sake, in the response that is being made.
	spared *cache.Resource
}

// bring takes in the versions of a first request.
func bring(versions map[string]string) *brought {
	b := &brought{at: make(map[string]int, len(versions)), all: make([]version, 0, len(versions)), left: len(versions)}
	for name, v := range versions {
		b.at[name] = len(b.all)
		b.all = append(b.all, version{name: name, version: v})
	}
	return b
}

// find is the version of a name, judged or not; nil: the client came with none.
func (b *brought) find(name string) *version {
	if b == nil {
		return nil
	}
	i, ok := b.at[name]
	if !ok {
		return nil
	}
	return &b.all[i]
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
		for i := range b.all {
			if v := &b.all[i]; !v.judged && !yield(v.name) {
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
