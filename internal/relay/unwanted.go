package relay

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/snapshot"
)

// What nobody wants any more stays on disk for a while (RECON-19). It may be much more than what is wanted, so
// it is in a file of its own, which is rewritten seldom, and not in memory. Until then it is in the snapshot.

// unwanted is what the keeper knows of it. It is guarded by the keeper's mutex.
type unwanted struct {
	keeper *keeper
	// parts were given up since the file was written, the latest last.
	parts []snapshot.Group
	// moved: the snapshot still has parts that are in the file of their own now.
	moved bool
	// better is what is wanted, during a save, and room is what that leaves of max_bytes.
	better []snapshot.Group
	room   int64

	wanted, size int64     // the files, in bytes
	oldest       time.Time // the age of the oldest part of the file; zero: there is none
	written      time.Time // when the file was last written, or the relay started
	took         time.Duration
}

// The file is rewritten once in a minute at most, and takes at most a part of the time.
const (
	rewriteEvery = time.Minute
	rewritePart  = 20
)

// maxParts is from how many bytes on the parts do not wait in memory for the next minute. Twice as many are
// kept if nothing can be written.
const maxParts = 64 << 20

// learn takes note of what is wanted.
func (u *unwanted) learn(wanted []snapshot.Group) {
	bytes := size(wanted)
	u.keeper.checkSize(bytes)
	u.better, u.room = wanted, int64(u.keeper.config.MaxBytes)-bytes
}

// collect takes what the groups have given up.
func (u *unwanted) collect(now time.Time) {
	u.parts = append(u.parts, u.keeper.groups.unwanted(u.keeper.skip, now)...)
	for len(u.parts) > 1 && size(u.parts) > 2*maxParts {
		u.parts = u.parts[1:]
	}
}

// size is about what groups take on disk.
func size(groups []snapshot.Group) (size int64) {
	for _, g := range groups {
		for _, l := range g.Lanes {
			size += snapshot.Size(l)
		}
	}
	return size
}

// latestFirst returns the parts in that order.
func (u *unwanted) latestFirst() []snapshot.Group {
	parts := slices.Clone(u.parts)
	slices.Reverse(parts)
	slices.SortStableFunc(parts, func(a, b snapshot.Group) int { return b.Saved.Compare(a.Saved) })
	return parts
}

// pending is what the snapshot has to have of it.
func (u *unwanted) pending(now time.Time) (groups []snapshot.Group) {
	if len(u.parts) == 0 {
		return nil
	}
	sieve := u.sieve(now)
	for _, g := range u.latestFirst() {
		lanes := g.Lanes
		g.Lanes = nil
		for _, l := range lanes {
			if l, ok := sieve.Pass(g, l); ok {
				g.Lanes = append(g.Lanes, l)
			}
		}
		if len(g.Lanes) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// sieve chooses what stays.
func (u *unwanted) sieve(now time.Time) *snapshot.Sieve {
	keep := u.keeper.config.KeepUnwanted
	s := &snapshot.Sieve{Room: max(u.room, 0), Skip: u.keeper.skip, TooOld: func(age time.Time) bool { return now.Sub(age) >= keep }}
	for _, g := range u.better {
		s.Say(g)
	}
	return s
}

// due reports whether the file has to be rewritten. That is not so at the end: the parts are in the snapshot
// then, and a relay that ends has no time for it.
func (u *unwanted) due(now time.Time) bool {
	expired := !u.oldest.IsZero() && now.Sub(u.oldest) >= u.keeper.config.KeepUnwanted
	switch {
	case len(u.parts) == 0 && !expired:
		return false
	case size(u.parts) > maxParts:
		return true
	}
	return now.Sub(u.written) >= max(rewriteEvery, rewritePart*u.took)
}

// write rewrites the file.
func (u *unwanted) write(now time.Time) (err error) {
	k := u.keeper
	if err := k.take(); err != nil {
		return err
	}
	sieve := u.sieve(now)
	if u.size, err = snapshot.WriteUnwanted(k.config.Dir, k.header(now), u.latestFirst(), k.key, k.fingerprint, sieve); err != nil {
		return err
	}
	// Until the snapshot is written the next time, it has the parts, too: if this file is lost in a
	// crash, nothing is.
	u.moved = u.moved || len(u.parts) > 0
	u.parts, u.oldest, u.written, u.took = nil, sieve.Oldest, now, time.Since(now)
	return nil
}

// loaded is what a start finds on disk, by group.
type loaded struct {
	keeper           *keeper
	now              time.Time
	wanted, unwanted map[string][]snapshot.Group

	served, spare tally // of both
}

// tally counts what was loaded.
type tally struct {
	resources int
	types     map[cache.TypeURL]bool
	asOf      time.Time // the oldest
}

func (t *tally) add(g snapshot.Group, lane fanout.Saved) {
	if len(lane.Resources) == 0 {
		return
	}
	if t.types == nil {
		t.types = make(map[cache.TypeURL]bool)
	}
	t.resources += len(lane.Resources)
	t.types[lane.Lane.Type] = true
	if t.asOf.IsZero() || g.Saved.Before(t.asOf) {
		t.asOf = g.Saved
	}
}

func (t *tally) String() string {
	return fmt.Sprintf("%s of %s as of %s", plural(t.resources, "resource"), plural(len(t.types), "type"), t.asOf.UTC().Format(time.RFC3339))
}

func (l *loaded) load(s *snapshot.Snapshot) {
	k := l.keeper
	u := &k.unwanted
	u.room, u.written = int64(k.config.MaxBytes), l.now
	sieve := u.sieve(l.now)
	for _, g := range s.Groups {
		if g.Unwanted {
			continue
		}
		if l.tooOld(g.Saved) {
			k.unused = true
			k.log.Warn("a group's snapshot is older than cache.snapshot.max_age and not used", "as_of", g.Saved, "max_age", k.config.MaxAge.String())
			continue
		}
		sieve.Say(g)
		g.Lanes = slices.DeleteFunc(g.Lanes, func(s fanout.Saved) bool {
			only := !s.Lane.Wildcard && len(s.Names) == 0 // only what is gone
			return only || k.skip(s.Lane.Type)
		})
		if len(g.Lanes) == 0 {
			continue
		}
		for _, lane := range g.Lanes {
			u.room -= snapshot.Size(lane)
			l.served.add(g, lane)
		}
		l.wanted[string(g.Name)] = append(l.wanted[string(g.Name)], g)
	}
	k.checkSize(int64(k.config.MaxBytes) - u.room)
	sieve.Room = max(u.room, 0)
	for _, g := range slices.DeleteFunc(s.Groups, func(g snapshot.Group) bool { return !g.Unwanted }) {
		u.parts = append(u.parts, g) // it is in no other file yet
		for _, lane := range g.Lanes {
			if lane, ok := sieve.Pass(g, lane); ok {
				l.shelve(g, lane)
			}
		}
	}
	slices.Reverse(u.parts)
	l.loadFile(sieve)
}

// loadFile loads the file of what is unwanted.
func (l *loaded) loadFile(sieve *snapshot.Sieve) {
	k := l.keeper
	sieve.Oldest = time.Time{}
	var found []snapshot.Group
	err := snapshot.ReadUnwanted(k.config.Dir, k.key, k.fingerprint, sieve, func(g snapshot.Group, lane fanout.Saved) {
		g.Lanes = []fanout.Saved{lane}
		found = append(found, g)
	})
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			k.observer.SnapshotFailed("load")
			k.log.Error("what is on disk although no client wanted it any more is not used", "err", err)
		}
		return
	}
	if k.unwanted.oldest = sieve.Oldest; sieve.Expired {
		k.unwanted.oldest = l.now.Add(-k.config.KeepUnwanted) // the file has some that has to go
	}
	for _, g := range found {
		l.shelve(g, g.Lanes[0])
	}
}

func (l *loaded) shelve(g snapshot.Group, lane fanout.Saved) {
	if l.tooOld(g.Saved) || l.keeper.skip(lane.Lane.Type) {
		return
	}
	l.spare.add(g, lane)
	g.Lanes = []fanout.Saved{lane}
	l.unwanted[string(g.Name)] = append(l.unwanted[string(g.Name)], g)
}

func (l *loaded) tooOld(age time.Time) bool {
	return l.keeper.config.MaxAge > 0 && l.now.Sub(age) > l.keeper.config.MaxAge
}

// say says what was loaded.
func (l *loaded) say(h snapshot.Header) {
	k, text, asOf := l.keeper, l.served.String(), l.served.asOf
	switch {
	case l.served.resources+l.spare.resources == 0 && k.unused:
		k.log.Info("snapshot loaded: none of it is used", "written", h.Written, "by", h.Relay)
		return
	case l.served.resources+l.spare.resources == 0:
		k.log.Info("snapshot loaded: it is empty", "written", h.Written, "by", h.Relay)
		return
	case l.served.resources == 0:
		text, asOf = l.spare.String()+", which no client wanted any more", l.spare.asOf
	case l.spare.resources > 0:
		text += fmt.Sprintf(", and %d that no client wanted any more", l.spare.resources)
	}
	k.observer.SnapshotLoaded(l.served.resources+l.spare.resources, asOf)
	k.log.Info("snapshot loaded: "+text+"; it is served until the control plane has answered",
		"groups", len(l.wanted), "resources", l.served.resources, "unwanted", l.spare.resources, "as_of", asOf, "by", h.Relay)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
