package certs

import (
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// notifier says when one of some names may have changed. It watches their directories,
// since a file that is renamed over is another one. nil hears nothing. It is used by one
// goroutine.
type notifier struct {
	watcher *fsnotify.Watcher
	log     *slog.Logger
	failed  bool // and has said so
	names   map[string]bool
	dirs    map[string]bool // of the names
}

// newNotifier returns one that watches nothing yet, or nil where the system does not help,
// which is logged: then files are only looked at from time to time.
func newNotifier(log *slog.Logger) *notifier {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("cannot watch certificate files for changes; they are read again from time to time instead", "err", err)
		return nil
	}
	return &notifier{watcher: w, log: log}
}

func (n *notifier) events() <-chan fsnotify.Event {
	if n == nil {
		return nil
	}
	return n.watcher.Events
}

func (n *notifier) errors() <-chan error {
	if n == nil {
		return nil
	}
	return n.watcher.Errors
}

// concerns: an event is about a name that is watched, or a directory of one: that has gone, or is another one, which is not
// watched yet.
func (n *notifier) concerns(e fsnotify.Event) bool { return n.names[e.Name] || n.dirs[e.Name] }

// watch has these names watched, and no others.
func (n *notifier) watch(names map[string]bool) {
	if n == nil {
		return
	}
	n.names, n.dirs = names, make(map[string]bool)
	for name := range names {
		n.dirs[filepath.Dir(name)] = true
	}
	dirs := maps.Clone(n.dirs)
	for _, dir := range n.watcher.WatchList() {
		if !dirs[dir] {
			_ = n.watcher.Remove(dir) // it may have gone by itself
		}
		delete(dirs, dir)
	}
	for dir := range dirs {
		if err := n.watcher.Add(dir); err != nil && !n.failed && !errors.Is(err, fs.ErrNotExist) {
			n.failed = true
			n.log.Warn("cannot watch the directory of certificate files for changes; they are read again from time to time instead", "dir", dir, "err", err)
		}
	}
}

func (n *notifier) close() {
	if n != nil {
		n.watcher.Close()
	}
}
