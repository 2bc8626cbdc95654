package reload

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watch calls back when a file has another content. It watches the directory, since the
// file itself may be replaced, or be a link through a directory that is replaced
// (Kubernetes swaps ..data). It also polls, since not every file system reports changes.
type Watch struct {
	// Path of the file, and What it is, for the log; empty: the configuration.
	Path, What string
	// Settle is how long the content must stay the same before it counts, Every how
	// often to look without being told.
	Settle, Every time.Duration
	// Known is the content that is in force; empty: what there is when Run begins.
	Known []byte
	// Gone is called when there has been nothing to read for some seconds, and no one replaces the file; nil: nobody
	// is told.
	Gone func()
	// Blind does without the system's help, as on a file system that has none.
	Blind bool
	// Log has a line if changes cannot be watched and the file is only polled.
	Log *slog.Logger

	ready chan struct{} // if set, closed once it watches
}

// The usual times.
const (
	usualSettle = 200 * time.Millisecond
	usualEvery  = time.Minute
	goneAfter   = 5 * time.Second
)

// NewWatch returns a Watch of a file with the usual times.
func NewWatch(path string, log *slog.Logger) *Watch {
	return &Watch{Path: path, Settle: usualSettle, Every: usualEvery, Log: log}
}

// Run calls changed, one call after the other, until ctx ends. Known, or the content that
// there is at the beginning, is taken for known. A file that cannot be read, or is empty, is taken for
// one that is just being replaced.
func (w *Watch) Run(ctx context.Context, changed func()) {
	var events chan fsnotify.Event
	var errs chan error
	if !w.Blind {
		watcher, err := fsnotify.NewWatcher()
		if err == nil {
			defer watcher.Close()
			events, errs = watcher.Events, watcher.Errors
			err = watcher.Add(filepath.Dir(w.Path))
		}
		if err != nil {
			w.Log.Warn("the directory of "+w.what()+" cannot be watched; the file is polled instead", "path", w.Path, "every", w.Every.String(), "err", err)
		}
	}
	known := w.Known
	if len(known) == 0 {
		known = w.read()
	}
	if w.ready != nil {
		close(w.ready)
	}
	poll := time.NewTicker(w.Every)
	defer poll.Stop()
	settle := time.NewTimer(w.Settle)
	defer settle.Stop()
	settle.Stop()
	gone, missing := time.NewTimer(goneAfter), false
	defer gone.Stop()
	gone.Stop()
	var seen []byte // the content that must stay the same for settle; nil: nothing has changed
	look := func() {
		now := w.read()
		if was := missing; now == nil && !was {
			gone.Reset(goneAfter)
		}
		if missing = now == nil; !missing && !bytes.Equal(now, known) && !bytes.Equal(now, seen) {
			seen = now
			settle.Reset(w.Settle)
		}
	}
	for look(); ; look() {
		select {
		case <-ctx.Done():
			return
		case err := <-errs: // events were lost, perhaps ours
			w.Log.Debug("watching "+w.what(), "path", w.Path, "err", err)
		case <-events:
		case <-poll.C:
		case <-gone.C:
			if missing && w.Gone != nil {
				w.Gone()
			}
		case <-settle.C:
			waited := seen
			if seen = nil; !bytes.Equal(w.read(), waited) {
				break // it is being written: once more
			}
			known = waited
			changed()
		}
	}
}

func (w *Watch) what() string { return cmp.Or(w.What, "the configuration") }

// read is the content, nil if there is none.
func (w *Watch) read() []byte {
	data, err := os.ReadFile(w.Path)
	if err != nil || len(data) == 0 {
		return nil
	}
	return data
}
