package relay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/downstream/session"
	"github.com/xds-relay/xds-relay/fanout"
	"github.com/xds-relay/xds-relay/internal/config"
	"github.com/xds-relay/xds-relay/internal/snapshot"
	upsession "github.com/xds-relay/xds-relay/upstream/session"
)

// SnapshotObserver observes the snapshot, for metrics.
type SnapshotObserver interface {
	// SnapshotWritten: files of so many bytes were written in a time.
	SnapshotWritten(bytes int64, took time.Duration)
	// SnapshotLoaded: so many resources were loaded, and the oldest that are wanted are as of a time.
	SnapshotLoaded(resources int, asOf time.Time)
	// SnapshotFailed: writing or loading did not work; the operation is "write" or
	// "load".
	SnapshotFailed(operation string)
}

// keeper keeps the last known good state of all groups on disk (RECON-19). Whatever
// happens to the disk, clients are served.
type keeper struct {
	config      config.Snapshot
	key         *snapshot.Key
	exclude     []cache.TypeURL
	types       cache.Types
	instance    string
	version     string
	fingerprint cache.Fingerprint
	groups      *groups
	answers     *upsession.Answers
	log         *slog.Logger
	observer    SnapshotObserver

	mu   sync.Mutex // one write at a time
	hold *snapshot.Hold
	lost bool // it was removed or replaced, and is not made again
	// written is how far the groups had come in the last file, and at when that was written.
	written map[string]progress
	at      time.Time
	failing bool // the last write failed, which is logged once
	over    bool // what is wanted is more than max_bytes, which is logged once
	// unused: the snapshot on disk could not be used, or was too old. It stays
	// there until there is something to save: a wrong key, found in an outage,
	// must not cost the last known good state.
	unused bool

	unwanted unwanted
}

// stampEvery is how often the age of what is wanted is written while nothing changes.
const stampEvery = time.Minute

// snapshotKey is the key that the snapshot is sealed with, or nil.
func snapshotKey(s config.Snapshot) (*snapshot.Key, error) {
	if s.Dir == "" || s.KeyFile == "" {
		return nil, nil
	}
	key, err := snapshot.ReadKey(s.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("cache.snapshot.key_file: %w", err)
	}
	return key, nil
}

// newKeeper returns a keeper, or nil if no snapshot is wanted.
func newKeeper(c *config.Config, key *snapshot.Key, g *groups, answers *upsession.Answers, o Options) *keeper {
	s := c.Cache.Snapshot
	if s.Dir == "" {
		return nil
	}
	k := &keeper{
		config: s, key: key, exclude: TypeURLs(s.ExcludeTypes), types: typeTable(c), instance: c.InstanceName(), version: o.Version,
		groups: g, answers: answers, log: o.Log.With("component", "snapshot"), observer: o.Snapshot,
	}
	if key == nil && len(c.Groups.ForwardHeaders) > 0 {
		k.log.Warn("groups of clients that send one of groups.forward_headers are not in the snapshot, since a restarted relay could not find them there: set cache.snapshot.key_file")
	}
	if k.observer == nil {
		k.observer = noSnapshots{}
	}
	k.unwanted.keeper = k
	return k
}

type noSnapshots struct{}

func (noSnapshots) SnapshotWritten(int64, time.Duration) {}
func (noSnapshots) SnapshotLoaded(int, time.Time)        {}
func (noSnapshots) SnapshotFailed(string)                {}

// load hands what is on disk to the groups. A file that cannot be used is reported,
// and the relay starts without it.
func (k *keeper) load(f cache.Fingerprint) {
	k.fingerprint = f
	if inUse := (*snapshot.InUse)(nil); errors.As(k.take(), &inUse) {
		k.failing = true
		k.observer.SnapshotFailed("write")
		k.log.Error("the snapshot directory belongs to another relay: its snapshot is loaded, and nothing is written until the other relay ends", "dir", k.config.Dir, "err", inUse)
	}
	s, err := snapshot.Read(k.config.Dir, k.key, f)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k.log.Info("no snapshot to load", "dir", k.config.Dir)
		if k.hold != nil { // who removes the snapshot wants none
			_ = snapshot.RemoveUnwanted(k.config.Dir) // else it will be said that nothing can be written
		}
		return
	case err != nil:
		k.unused = true
		k.observer.SnapshotFailed("load")
		k.log.Error("the snapshot is not used; clients wait for the control plane", "err", err)
		return
	}
	l := loaded{keeper: k, now: time.Now(), wanted: make(map[string][]snapshot.Group), unwanted: make(map[string][]snapshot.Group)}
	k.answers.Recall(s.Header.Habits)
	l.load(s)
	l.say(s.Header)
	k.groups.revive(l.wanted, l.unwanted)
	k.written, k.at = k.groups.progress(), l.now // nothing in them is news
}

// take holds the directory, unless it does so already: two relays would overwrite what
// the other has saved. A directory that was removed meanwhile is not made again: it may have
// been a disk that is gone.
func (k *keeper) take() (err error) {
	if k.hold != nil {
		if err = k.hold.Check(); err != nil {
			k.hold.Close()
			k.hold, k.lost, k.written = nil, true, nil
		}
		return err
	}
	if k.lost {
		if _, err := os.Stat(k.config.Dir); err != nil {
			return err
		}
	}
	k.hold, err = snapshot.TakeHold(k.config.Dir, fmt.Sprintf("process %d, instance %q", os.Getpid(), k.instance))
	k.lost = k.lost && err != nil
	return err
}

// close lets the next relay have the directory.
func (k *keeper) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.hold != nil {
		k.hold.Close()
		k.hold = nil
	}
}

// skip reports whether a type does not go to the disk: a secret one never does in the clear.
func (k *keeper) skip(t cache.TypeURL) bool {
	return slices.Contains(k.exclude, t) || k.key == nil && k.types.Of(t).Secret
}

// run writes while things change, until ctx ends.
func (k *keeper) run(ctx context.Context) {
	tick := time.NewTicker(k.config.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.save(false)
		}
	}
}

// save writes what has changed since the last time: what is wanted also when the control plane was
// known to be alive meanwhile, each minute and at the end.
func (k *keeper) save(end bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.groups.progress() // first: what changes meanwhile is written next time
	begin := time.Now()
	news, rest := k.due(now, end), !end && k.unwanted.due(begin)
	if !news && !rest {
		return
	}
	groups := k.groups.save(k.skip, begin)
	k.unwanted.learn(groups)
	wanted, err := false, error(nil)
	if news {
		wanted, err = k.writeWanted(groups, begin)
	}
	rest = err == nil && !end && k.unwanted.due(begin)
	if rest {
		err = k.unwanted.write(begin)
	}
	k.unwanted.better = nil
	if err != nil {
		k.observer.SnapshotFailed("write")
		if !k.failing {
			k.log.Error("the snapshot cannot be written; clients are still served, and the relay tries again", "dir", k.config.Dir, "err", err)
		}
		k.failing = true
		return
	}
	if wanted {
		k.written, k.at, k.unused = now, begin, false
	}
	if wanted || rest {
		if k.failing {
			k.log.Info("the snapshot can be written again")
		}
		k.failing = false
		k.observer.SnapshotWritten(k.unwanted.wanted+k.unwanted.size, time.Since(begin))
	}
}

// due reports whether there is something to write of what is wanted.
func (k *keeper) due(now map[string]progress, end bool) bool {
	if len(now) != len(k.written) || k.unwanted.moved {
		return true
	}
	later := stampEvery
	if end {
		later = 1
	}
	stamp := end || time.Since(k.at) >= stampEvery/2 // there are many groups
	for name, p := range now {
		was, known := k.written[name]
		older := stamp && p.alive.Sub(was.alive) >= later
		if !known || p.Progress != was.Progress || older {
			return true
		}
	}
	return false
}

// writeWanted writes what is wanted, and what is not and has no place in its own file yet.
func (k *keeper) writeWanted(groups []snapshot.Group, now time.Time) (written bool, err error) {
	k.unwanted.collect(now) // after the rest: what is given up meanwhile is in both
	s := &snapshot.Snapshot{Header: k.header(now), Groups: append(slices.Clone(groups), k.unwanted.pending(now)...)}
	if k.unused && len(s.Groups) == 0 {
		return false, nil
	}
	if err := k.take(); err != nil {
		return false, err
	}
	if k.unwanted.wanted, err = snapshot.Write(k.config.Dir, s, k.key); err == nil {
		k.unwanted.moved = false
	}
	return err == nil, err
}

// checkSize says once that what is wanted is more than it should be.
func (k *keeper) checkSize(size int64) {
	over := size > int64(k.config.MaxBytes)
	if over && !k.over {
		k.log.Warn("what clients want is more than cache.snapshot.max_bytes: it is written and read all the same, and nothing else is kept", "bytes", size, "max_bytes", int64(k.config.MaxBytes))
	}
	k.over = over
}

func (k *keeper) header(now time.Time) snapshot.Header {
	return snapshot.Header{Relay: k.version, Instance: k.instance, Written: now, Habits: k.answers.Habits()}
}

// --- groups ---

// revive starts the default groups from the snapshot, if some of that is wanted, and keeps the other
// groups' parts until their first client comes. What is unwanted is kept until the control plane is there.
func (g *groups) revive(wanted, unwanted map[string][]snapshot.Group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.saved, g.shelved = wanted, unwanted
	if !g.HasDefault() || !g.Stays("") {
		return
	}
	for name := range wanted {
		p, ok := g.defaultOf(name)
		if !ok {
			continue
		}
		if gr, claimant, _, end := g.join(p, session.Peer{}, g.staticNode(p.provider)); end == nil { // it is the first, and never refused
			g.part(gr, claimant)
		}
	}
}

// warm loads what was saved of a group into its Hub. It is called with mu held.
func (g *groups) warm(name string, gr *group) {
	now := time.Now()
	for _, saved := range g.saved[name] {
		gr.hub.Disk().Load(saved.Lanes, now)
	}
	delete(g.saved, name)
	for _, shelved := range g.shelved[name] {
		if now.Sub(shelved.Saved) < g.live.Cache.Snapshot.KeepUnwanted {
			gr.hub.Disk().Shelve(shelved.Lanes)
		}
	}
}

// progress is how far a group has come.
type progress struct {
	fanout.Progress
	alive time.Time // when its control plane was last known to be alive
}

// progress tells whether there is anything new to write.
func (g *groups) progress() map[string]progress {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(time.Now())
	all := make(map[string]progress, len(g.byName))
	for name, gr := range g.byName {
		if gr.kept {
			all[name] = progress{gr.hub.Disk().Progress(), gr.client.Alive()}
		}
	}
	return all
}

// save is the content of all groups, and of those that were loaded and to which
// no client has come back yet.
func (g *groups) save(skip func(cache.TypeURL) bool, now time.Time) []snapshot.Group {
	g.mu.Lock()
	live := maps.Clone(g.byName)
	maps.DeleteFunc(live, func(_ string, gr *group) bool { return !gr.kept })
	unclaimed := g.unclaimed(now)
	g.mu.Unlock()
	var all []snapshot.Group
	for name, gr := range live {
		alive := gr.client.Alive() // before: what changes meanwhile is newer
		if alive.IsZero() {
			alive = now // all that it has is restored, and has an age of its own
		}
		all = append(all, snapshot.GroupsOf(name, alive, false, gr.hub.Disk().Save(skip))...)
	}
	return append(all, unclaimed...)
}

// unwanted takes what the groups, and those that have ended, have given up since the last time.
func (g *groups) unwanted(skip func(cache.TypeURL) bool, now time.Time) (all []snapshot.Group) {
	g.mu.Lock()
	live, ended := maps.Clone(g.byName), g.ended
	g.ended = nil
	g.mu.Unlock()
	for _, gr := range ended {
		lanes := append(gr.hub.Disk().Save(skip), gr.hub.Disk().Unwanted(skip)...) // what it had to the end goes first
		all = append(all, snapshot.GroupsOf(gr.name, now, true, lanes)...)
	}
	for name, gr := range live {
		all = append(all, snapshot.GroupsOf(name, now, true, gr.hub.Disk().Unwanted(skip))...)
	}
	return all
}
