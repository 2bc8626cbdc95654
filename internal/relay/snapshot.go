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
)

// SnapshotObserver observes the snapshot, for metrics.
type SnapshotObserver interface {
	// SnapshotWritten: a file of so many bytes was written in a time.
	SnapshotWritten(bytes int64, took time.Duration)
	// SnapshotLoaded: so many resources were loaded, and the oldest are as of a time.
	SnapshotLoaded(resources int, asOf time.Time)
	// SnapshotFailed: writing or loading did not work; the operation is "write" or
	// "load".
	SnapshotFailed(operation string)
}

// keeper keeps the last known good state of all groups on disk (RECON-19). Whatever
// happens to the disk, clients are served.
type keeper struct {
	config   config.Snapshot
	key      *snapshot.Key
	exclude  []cache.TypeURL
	instance string
	version  string
	groups   *groups
	log      *slog.Logger
	observer SnapshotObserver

	mu   sync.Mutex // one write at a time
	hold *snapshot.Hold
	// written is how far the groups had come in the last file.
	written map[string]fanout.Progress
	failing bool // the last write failed, which is logged once
	// unused: the snapshot on disk could not be used, or was too old. It stays
	// there until there is something to save: a wrong key, found in an outage,
	// must not cost the last known good state.
	unused bool
}

// keepUnclaimed is how long a group to which no client has come back stays in the file, if
// the control plane is alive.
const keepUnclaimed = 24 * time.Hour

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
func newKeeper(c *config.Config, key *snapshot.Key, g *groups, o Options) *keeper {
	s := c.Cache.Snapshot
	if s.Dir == "" {
		return nil
	}
	k := &keeper{
		config: s, key: key, exclude: TypeURLs(s.ExcludeTypes), instance: c.InstanceName(), version: o.Version,
		groups: g, log: o.Log.With("component", "snapshot"), observer: o.Snapshot,
	}
	if key == nil {
		k.exclude = append(k.exclude, cache.Secret) // never on disk in clear
		if len(c.Groups.ForwardHeaders) > 0 {
			k.log.Warn("groups of clients that send one of groups.forward_headers are not in the snapshot, since a restarted relay could not find them there: set cache.snapshot.key_file")
		}
	}
	if k.observer == nil {
		k.observer = noSnapshots{}
	}
	return k
}

type noSnapshots struct{}

func (noSnapshots) SnapshotWritten(int64, time.Duration) {}
func (noSnapshots) SnapshotLoaded(int, time.Time)        {}
func (noSnapshots) SnapshotFailed(string)                {}

// load hands what is on disk to the groups. A file that cannot be used is reported,
// and the relay starts without it.
func (k *keeper) load(f cache.Fingerprint) {
	if inUse := (*snapshot.InUse)(nil); errors.As(k.take(), &inUse) {
		k.failing = true
		k.observer.SnapshotFailed("write")
		k.log.Error("the snapshot directory belongs to another relay: its snapshot is loaded, and nothing is written until the other relay ends", "dir", k.config.Dir, "err", inUse)
	}
	s, err := snapshot.Read(k.config.Dir, k.key, f)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k.log.Info("no snapshot to load", "dir", k.config.Dir)
		return
	case err != nil:
		k.unused = true
		k.observer.SnapshotFailed("load")
		k.log.Error("the snapshot is not used; clients wait for the control plane", "err", err)
		return
	}
	resources, groups := 0, make(map[string]snapshot.Group, len(s.Groups))
	now := time.Now()
	asOf := now // the oldest of what is loaded
	for _, g := range s.Groups {
		if age := now.Sub(g.Saved); k.config.MaxAge > 0 && age > k.config.MaxAge {
			k.unused = true
			k.log.Warn("a group's snapshot is older than cache.snapshot.max_age and not used", "as_of", g.Saved, "max_age", k.config.MaxAge.String())
			continue
		}
		g.Lanes = slices.DeleteFunc(g.Lanes, func(l fanout.Saved) bool { return k.skip(l.Lane.Type) })
		for _, l := range g.Lanes {
			resources += len(l.Resources)
		}
		groups[string(g.Name)] = g
		if g.Saved.Before(asOf) {
			asOf = g.Saved
		}
	}
	if len(groups) == 0 {
		return
	}
	k.observer.SnapshotLoaded(resources, asOf)
	k.log.Info("snapshot loaded; it is served until the control plane has answered",
		"groups", len(groups), "resources", resources, "as_of", asOf, "by", s.Header.Relay)
	k.groups.revive(groups)
	k.written = k.groups.progress() // nothing in them is news
}

// take holds the directory, unless it does so already: two relays would overwrite what
// the other has saved.
func (k *keeper) take() (err error) {
	if k.hold == nil {
		k.hold, err = snapshot.TakeHold(k.config.Dir, fmt.Sprintf("process %d, instance %q", os.Getpid(), k.instance))
	}
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

func (k *keeper) skip(t cache.TypeURL) bool { return slices.Contains(k.exclude, t) }

// run writes while things change, until ctx ends.
func (k *keeper) run(ctx context.Context) {
	tick := time.NewTicker(k.config.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.save()
		}
	}
}

// save writes a file if anything has changed since the last one.
func (k *keeper) save() {
	k.mu.Lock()
	defer k.mu.Unlock()
	progress := k.groups.progress() // first: what changes meanwhile is written next time
	if maps.Equal(progress, k.written) {
		return
	}
	begin := time.Now()
	s := &snapshot.Snapshot{
		Header: snapshot.Header{Relay: k.version, Instance: k.instance, Written: begin},
		Groups: k.groups.save(k.skip, begin),
	}
	if k.unused && len(s.Groups) == 0 {
		return
	}
	size := int64(0)
	err := k.take()
	if err == nil {
		size, err = snapshot.Write(k.config.Dir, s, k.key)
	}
	if err != nil {
		k.observer.SnapshotFailed("write")
		if !k.failing {
			k.log.Error("the snapshot cannot be written; clients are still served, and the relay tries again", "dir", k.config.Dir, "err", err)
		}
		k.failing = true
		return
	}
	if k.failing {
		k.log.Info("the snapshot can be written again")
	}
	k.failing, k.unused, k.written = false, false, progress
	k.observer.SnapshotWritten(size, time.Since(begin))
}

// --- groups ---

// revive starts the default group from the snapshot, and keeps the other groups'
// parts until their first client comes.
func (g *groups) revive(saved map[string]snapshot.Group) {
	g.mu.Lock()
	g.saved = saved
	g.mu.Unlock()
	if _, ok := saved[""]; ok && g.HasDefault() && g.Stays("") {
		if gr, end := g.join(Place{}, session.Peer{}, g.StaticNode()); end == nil { // it is the first, and never refused
			g.leave(gr, nil)
		}
	}
}

// warm loads what was saved of a group into its Hub. It is called with mu held.
func (g *groups) warm(name string, gr *group) {
	saved, ok := g.saved[name]
	if !ok {
		return
	}
	delete(g.saved, name)
	gr.saved = saved.Saved
	gr.hub.Disk().Load(saved.Lanes, time.Now())
}

// progress tells whether there is anything new to write.
func (g *groups) progress() map[string]fanout.Progress {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(time.Now())
	progress := make(map[string]fanout.Progress, len(g.byName))
	for name, gr := range g.byName {
		if gr.kept {
			progress[name] = gr.hub.Disk().Progress()
		}
	}
	return progress
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
		s := snapshot.Group{Name: []byte(name), Saved: now, Lanes: gr.hub.Disk().Save(skip)}
		if gr.hub.Disk().Stale() {
			s.Saved = gr.saved // the control plane has not spoken since
		}
		if len(s.Lanes) > 0 {
			all = append(all, s)
		}
	}
	return append(all, unclaimed...)
}
