package certs

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// notifier says when one of some names may have changed. It watches their directories,
// since a file that is renamed over is another one. It is used by one goroutine.
type notifier struct {
	watcher *fsnotify.Watcher
	log     *slog.Logger
	wake    chan<- struct{}
	work    sync.WaitGroup
	failed  bool // and has said so

	mu    sync.Mutex
	names map[string]bool
}

// newNotifier starts one that sends to a channel with room for one. Without the system's
// help there is none, which is logged: then files are only looked at from time to time.
func newNotifier(log *slog.Logger, wake chan<- struct{}) *notifier {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("cannot watch certificate files for changes; they are read again from time to time instead", "err", err)
		return nil
	}
	n := &notifier{watcher: w, log: log, wake: wake, names: make(map[string]bool)}
	n.work.Go(n.listen)
	return n
}

func (n *notifier) listen() {
	for {
		select {
		case e, ok := <-n.watcher.Events:
			if !ok {
				return
			}
			n.mu.Lock()
			concerned := n.names[e.Name]
			n.mu.Unlock()
			if concerned {
				n.tell()
			}
		case _, ok := <-n.watcher.Errors:
			if !ok {
				return
			}
			n.tell() // what was missed is unknown
		}
	}
}

func (n *notifier) tell() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// watch has these names watched, and no others.
func (n *notifier) watch(names map[string]bool) {
	if n == nil {
		return
	}
	n.mu.Lock()
	n.names = names
	n.mu.Unlock()
	dirs := make(map[string]bool)
	for name := range names {
		dirs[filepath.Dir(name)] = true
	}
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
	if n == nil {
		return
	}
	n.watcher.Close()
	n.work.Wait()
}
