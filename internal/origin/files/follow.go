package files

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/xds-relay/xds-relay/internal/symlinks"
)

// Observer counts loads. Its method may be called from any goroutine.
type Observer interface {
	// FilesLoaded: a path was read after a change, and is in use, or is wrong and changes nothing.
	FilesLoaded(path string, ok bool)
}

// Follow says how a path is followed.
type Follow struct {
	Options
	// Poll is how often the path is looked at without a report; 0: never. NoNotify does without reports.
	Poll     time.Duration
	NoNotify bool
	// InPlace reads files again that were written in place, once they are closed (FS-4).
	InPlace bool
	// Optional: the path may be missing at first (FS-6).
	Optional bool
	Log      *slog.Logger
	Observer Observer // nil: nobody
	// Loaded is called with what was loaded, at first by Open.
	Loaded func(*Set)
}

const (
	// coalesce is how long changes are gathered for one load.
	coalesce = 100 * time.Millisecond
	// still is how long a file must not have changed for a poll to take it: nothing says that it is complete.
	still = 2 * time.Second
	// attempts is how often a load is repeated because files were exchanged meanwhile.
	attempts = 10
)

// Source is a path that is followed.
type Source struct {
	path   string
	follow Follow
	watch  *watcher
	seen   stamps // what was loaded last, or tried to
	told   stamps // what was written in place, and is in the log
}

// stamp tells versions of a file apart: another file has another identity, one that was written in place another time.
type stamp struct {
	file os.FileInfo
}

func (s stamp) same(o stamp) bool { return o.file != nil && os.SameFile(s.file, o.file) }

func (s stamp) unwritten(o stamp) bool {
	return o.file != nil && s.file.Size() == o.file.Size() && s.file.ModTime().Equal(o.file.ModTime())
}

// stamps are those of the files of a path.
type stamps map[string]stamp

// look returns the stamps of what can be seen of a path.
func look(path string) stamps {
	paths, _ := list(path) // Load says what is wrong
	seen := make(stamps, len(paths))
	for _, p := range paths {
		if info, err := os.Stat(p); err == nil {
			seen[p] = stamp{info}
		}
	}
	return seen
}

// changed reports whether a file has been exchanged, or is new. One that is gone changes nothing by itself: the rest
// may be about to follow, and nothing says that all of its resources are to go.
func (now stamps) changed(before stamps, inPlace bool) bool {
	for path, s := range now {
		if !s.same(before[path]) || inPlace && !s.unwritten(before[path]) {
			return true
		}
	}
	return false
}

// young reports whether any file was written so recently that it may not be complete.
func (now stamps) young(at time.Time) bool {
	for _, s := range now {
		if age := at.Sub(s.file.ModTime()); age >= 0 && age < still {
			return true
		}
	}
	return false
}

// Open loads a path. If it is missing and may be, nothing is loaded yet. Run must follow.
func Open(path string, f Follow) (*Source, error) {
	s := &Source{path: path, follow: f}
	if !f.NoNotify {
		s.watch = newWatcher(f.InPlace, f.Log)
	}
	s.watch.watch(s.dirs()) // before it is read, so that what comes after that is heard
	set, err := s.load()
	switch {
	case err == nil:
		s.tell(true)
		f.Loaded(set)
	case f.Optional && Missing(path):
		f.Log.Warn("there are no files yet; nothing is served from them until there are", "path", path)
	default:
		s.watch.close()
		return nil, err
	}
	return s, nil
}

// Missing reports whether there is no such path.
func Missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// load reads the path, so that all files are of one version.
func (s *Source) load() (set *Set, err error) {
	s.seen = look(s.path)
	for range attempts {
		begins := time.Now()
		set, err = Load(s.path, s.follow.Options)
		now := look(s.path)
		if !now.changed(s.seen, true) {
			if err == nil {
				s.follow.Log.Info("files loaded", "path", s.path, "files", set.Files, "types", len(set.Resources), "resources", set.Count(), "took", time.Since(begins).Round(time.Millisecond))
			}
			break
		}
		s.seen = now
		time.Sleep(coalesce / attempts)
	}
	return set, err
}

// Run loads the path whenever it has changed, until ctx ends.
func (s *Source) Run(ctx context.Context) {
	defer s.watch.close()
	for {
		reported, over := s.await(ctx)
		if over {
			return
		}
		s.watch.watch(s.dirs()) // which the change may have made others
		s.reload(reported)
	}
}

// dirs are the directories in which a change may be one of the path.
func (s *Source) dirs() []string {
	path, err := filepath.Abs(s.path)
	if err != nil {
		return nil
	}
	dirs := map[string]bool{path: true, filepath.Dir(path): true}
	names := symlinks.Steps(path)
	for file := range look(path) {
		names = append(names, symlinks.Steps(file)...)
	}
	for _, name := range names {
		dirs[filepath.Dir(name)] = true
	}
	return slices.Sorted(maps.Keys(dirs))
}

// await returns when the path is to be looked at again; reported: because something was renamed into place, or closed.
func (s *Source) await(ctx context.Context) (reported, over bool) {
	var poll <-chan time.Time
	if s.follow.Poll > 0 {
		timer := time.NewTimer(s.follow.Poll)
		defer timer.Stop()
		poll = timer.C
	}
	select {
	case <-ctx.Done():
		return false, true
	case <-poll:
		return false, false
	case <-s.watch.changes():
	}
	timer := time.NewTimer(coalesce)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, true
	case <-timer.C:
	}
	s.watch.drain()
	return true, false
}

// reload loads the path if it has changed.
func (s *Source) reload(reported bool) {
	now := look(s.path)
	if !now.changed(s.seen, s.follow.InPlace) {
		s.tellWritten(now)
		return
	}
	if !reported && now.young(time.Now()) {
		return
	}
	set, err := s.load()
	s.tell(err == nil)
	if err != nil {
		s.follow.Log.Warn("files have changed and cannot be used; what was loaded before stays in use", "path", s.path, "err", err)
		return
	}
	s.follow.Loaded(set)
}

func (s *Source) tell(ok bool) {
	if s.follow.Observer != nil {
		s.follow.Observer.FilesLoaded(s.path, ok)
	}
}

// tellWritten says, once a file, that what was written in place is not read.
func (s *Source) tellWritten(now stamps) {
	for path, f := range now {
		if f.unwritten(s.seen[path]) || f.unwritten(s.told[path]) || !f.same(s.seen[path]) {
			continue
		}
		if s.told == nil {
			s.told = make(stamps)
		}
		s.told[path] = f
		s.follow.Log.Warn("a file was written in place and is not read; rename a new one over it, or set upstream.files.reload_on_close_write", "path", path)
	}
}
