//go:build !linux

package files

import (
	"log/slog"
	"slices"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// watcher says that something in some directories has changed. nil hears nothing.
type watcher struct {
	fsnotify *fsnotify.Watcher
	ops      fsnotify.Op
	log      *slog.Logger
	hear     chan struct{} // one slot
	done     sync.WaitGroup
}

// newWatcher returns one that watches nothing yet, or nil where the system does not help, which is logged.
func newWatcher(closed bool, log *slog.Logger) *watcher {
	f, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("cannot watch files for changes; they are looked at every upstream.files.poll instead", "err", err)
		return nil
	}
	w := &watcher{fsnotify: f, ops: fsnotify.Create | fsnotify.Rename, log: log, hear: make(chan struct{}, 1)}
	if closed {
		w.ops |= fsnotify.Write
	}
	w.done.Go(w.read)
	return w
}

func (w *watcher) close() {
	if w != nil {
		w.fsnotify.Close()
		w.done.Wait()
	}
}

// watch has these directories watched, and no others.
func (w *watcher) watch(dirs []string) {
	if w == nil {
		return
	}
	for _, dir := range w.fsnotify.WatchList() {
		if !slices.Contains(dirs, dir) {
			_ = w.fsnotify.Remove(dir) // it may have gone by itself
		}
	}
	for _, dir := range dirs {
		if err := w.fsnotify.Add(dir); err != nil {
			w.log.Debug("cannot watch a directory for changes", "dir", dir, "err", err)
		}
	}
}

// read hears the system's reports until close.
func (w *watcher) read() {
	for {
		select {
		case e, ok := <-w.fsnotify.Events:
			if !ok {
				return
			}
			if e.Op&w.ops == 0 {
				continue
			}
		case _, ok := <-w.fsnotify.Errors: // what was missed is unknown
			if !ok {
				return
			}
		}
		select {
		case w.hear <- struct{}{}:
		default:
		}
	}
}
