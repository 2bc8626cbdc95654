package snapshot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
)

// What nobody wants any more has a file of its own, of the same form, since it may be much more than
// what is wanted: it is written seldom, and never in memory as a whole while the relay runs. Its
// groups are in order, the latest first. What is not in it yet is in the snapshot itself.

// ReadUnwanted calls each with all lanes of the file that pass the sieve. The error is fs.ErrNotExist if
// there is no file; after any other error nothing of it may be used.
func ReadUnwanted(dir string, key *Key, f cache.Fingerprint, sieve *Sieve, each func(Group, fanout.Saved)) error {
	in, err := open(dir, unwantedName)
	if err != nil {
		return err
	}
	defer in.Close()
	var group Group
	_, err = walk(in, unwantedName, key, f, func(g Group) { group = g }, func(l fanout.Saved) {
		if l, ok := sieve.Pass(group, l); ok {
			each(group, l)
		}
	})
	if err != nil {
		return fmt.Errorf("%s: %w", in.Name(), err)
	}
	return nil
}

// WriteUnwanted replaces the file of what is unwanted by what passes the sieve of it and of more groups. A file
// that is damaged is replaced as if it were empty.
func WriteUnwanted(dir string, h Header, more []Group, key *Key, f cache.Fingerprint, sieve *Sieve) (size int64, err error) {
	slices.SortStableFunc(more, func(a, b Group) int { return b.Saved.Compare(a.Saved) })
	in, err := open(dir, unwantedName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if err == nil {
		defer in.Close()
	}
	empty := true
	merge := func(in *os.File, try *Sieve) (size int64, fault error, err error) {
		size, err = replace(dir, unwantedName, func(out io.Writer) error {
			m := merger{w: newWriter(out, unwantedName, key), sieve: try, more: more}
			m.w.begin(h)
			if in != nil {
				if _, fault = walk(in, unwantedName, key, f, m.group, m.lane); fault != nil {
					return fault
				}
			}
			m.before(time.Time{})
			empty = m.w.records == 1
			return m.w.end()
		})
		return size, fault, err
	}
	try := sieve.clone()
	size, fault, err := merge(in, try)
	if broken := (*fs.PathError)(nil); fault != nil && !errors.As(fault, &broken) {
		try = sieve.clone()
		size, _, err = merge(nil, try)
	}
	*sieve = *try
	if err == nil && empty {
		return 0, RemoveUnwanted(dir)
	}
	return size, err
}

// merger writes groups of two sources that are both in order, the latest first.
type merger struct {
	w     *writer
	sieve *Sieve
	more  []Group // of the second source; those of the first come in calls

	of      Group
	written bool // of is
}

func (m *merger) group(g Group) {
	m.before(g.Saved)
	m.of, m.written = g, false
}

func (m *merger) lane(l fanout.Saved) {
	l, ok := m.sieve.Pass(m.of, l)
	if l.Gone = nil; !ok || len(l.Resources) == 0 && !l.Lane.Wildcard {
		return // that something is gone has been said of all that follows
	}
	if !m.written {
		m.of.Unwanted, m.written = true, true
		m.w.json(kindGroup, m.of)
	}
	m.w.lane(l)
}

// before writes the groups of the second source that are as late as a time.
func (m *merger) before(at time.Time) {
	for len(m.more) > 0 && !m.more[0].Saved.Before(at) {
		m.of, m.written = m.more[0], false
		for _, l := range m.more[0].Lanes {
			m.lane(l)
		}
		m.more = m.more[1:]
	}
}

// Sieve chooses what is kept of what several groups say, in their order, the latest first: the first word on
// each name, as long as there is room.
type Sieve struct {
	// Room is how many bytes may follow.
	Room int64
	// TooOld says which age is too old, and Skip which types are left out; nil: none. Expired: something
	// was too old.
	TooOld  func(time.Time) bool
	Skip    func(cache.TypeURL) bool
	Expired bool
	// Oldest is the age of the oldest group of which something has passed; zero: none.
	Oldest time.Time

	said map[word]struct{}
	all  int64 // the room to begin with
}

type word struct {
	group string
	lane  fanout.Lane
	name  string
}

func (s *Sieve) clone() *Sieve {
	c := *s
	c.said = maps.Clone(s.said)
	return &c
}

// Say notes that what is said of a group's names by others is out of date.
func (s *Sieve) Say(g Group) {
	for _, l := range g.Lanes {
		s.news(g, l)
	}
}

// Pass returns what is kept of a lane of a group; ok is false if it is nothing. The oldest go first: when
// something has to be left out for lack of room, nothing older is kept.
func (s *Sieve) Pass(g Group, l fanout.Saved) (kept fanout.Saved, ok bool) {
	if s.Skip != nil && s.Skip(l.Lane.Type) {
		return kept, false
	}
	if s.TooOld != nil && s.TooOld(g.Saved) {
		s.Expired = true
		return kept, false
	}
	s.all = max(s.all, s.Room)
	if kept, ok = s.news(g, l); !ok {
		return kept, false
	}
	full := false
	if l.Lane.Wildcard {
		ok, full = s.take(Size(kept))
	} else {
		kept, full = s.fit(kept)
		ok = len(kept.Names)+len(kept.Gone) > 0
	}
	if full {
		s.Room = 0
	}
	if ok && (s.Oldest.IsZero() || g.Saved.Before(s.Oldest)) {
		s.Oldest = g.Saved
	}
	return kept, ok
}

// take takes room. full: there would have been room for it, if others had not taken it.
func (s *Sieve) take(size int64) (taken, full bool) {
	if size > s.Room {
		return false, size <= s.all
	}
	s.Room -= size
	return true, false
}

// news returns what a lane says of names of which nothing was said before; ok is false if that is nothing.
func (s *Sieve) news(g Group, l fanout.Saved) (news fanout.Saved, ok bool) {
	if s.said == nil {
		s.said = make(map[word]struct{})
	}
	stale := func(name string) bool {
		w := word{string(g.Name), l.Lane, name}
		_, was := s.said[w]
		s.said[w] = struct{}{}
		return was
	}
	if l.Lane.Wildcard {
		return l, !stale(fanout.Wildcard)
	}
	l.Gone = slices.DeleteFunc(slices.Clone(l.Gone), stale)
	l.Names = slices.DeleteFunc(slices.Clone(l.Names), stale)
	return l, len(l.Gone)+len(l.Names) > 0
}

// fit leaves out the resources for which there is no room, those that no name leads to, and the names
// that lead to nothing then.
func (s *Sieve) fit(l fanout.Saved) (fitting fanout.Saved, full bool) {
	led := make(map[string]bool, len(l.Names))
	for _, name := range l.Names {
		led[name] = false
	}
	resources := l.Resources
	l.Resources = nil
	for _, r := range resources {
		size, wanted := sizeOf(r), false
		for name := range r.Names() {
			if _, is := led[name]; is {
				size, wanted = size+sizeOfName(name), true
			}
		}
		if !wanted {
			continue
		}
		taken, crowded := s.take(size)
		full = full || crowded
		if !taken {
			continue
		}
		l.Resources = append(l.Resources, r)
		for name := range r.Names() {
			if _, is := led[name]; is {
				led[name] = true
			}
		}
	}
	l.Names = slices.DeleteFunc(l.Names, func(name string) bool { return !led[name] })
	return l, full
}

// Size is about what a lane takes on disk.
func Size(l fanout.Saved) (size int64) {
	for _, names := range [][]string{l.Names, l.Gone} {
		for _, name := range names {
			size += sizeOfName(name)
		}
	}
	for _, r := range l.Resources {
		size += sizeOf(r)
	}
	return size
}

// overhead is about what a record takes beside its resource, with a seal.
const overhead = 48

func sizeOf(r cache.Held) int64 { return int64(len(r.Element()) + len(r.Upstream) + overhead) }

// sizeOfName is what a name takes in JSON, in which it is encoded.
func sizeOfName(name string) int64 { return int64(len(name)+2)*4/3 + 3 }

// RemoveUnwanted removes the file of what is unwanted, if there is one.
func RemoveUnwanted(dir string) error {
	if err := os.Remove(filepath.Join(dir, unwantedName)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
