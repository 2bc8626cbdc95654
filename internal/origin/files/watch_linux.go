package files

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher says that something in some directories is complete: it was renamed into place, is a link, or, if that is
// wanted, was closed after it was written. fsnotify does not tell a file that was renamed into place from one that
// is only begun, nor when a file is closed. nil hears nothing.
type watcher struct {
	file *os.File // of inotify
	mask uint32
	log  *slog.Logger
	hear chan struct{} // one slot
	done sync.WaitGroup

	mu   sync.Mutex
	dirs map[string]int32 // with the number of each watch
}

// newWatcher returns one that watches nothing yet, or nil where the system does not help, which is logged.
func newWatcher(closed bool, log *slog.Logger) *watcher {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		log.Warn("cannot watch files for changes; they are looked at every upstream.files.poll instead", "err", err)
		return nil
	}
	w := &watcher{
		file: os.NewFile(uintptr(fd), "inotify"), mask: unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR,
		log: log, hear: make(chan struct{}, 1), dirs: make(map[string]int32),
	}
	if closed {
		w.mask |= unix.IN_CLOSE_WRITE
	}
	w.done.Go(w.read)
	return w
}

func (w *watcher) close() {
	if w != nil {
		w.file.Close()
		w.done.Wait()
	}
}

// watch has these directories watched, and no others. One that is another directory by now is, too.
func (w *watcher) watch(dirs []string) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	raw, err := w.file.SyscallConn()
	if err != nil {
		return // it is closed
	}
	_ = raw.Control(func(fd uintptr) { // an error means that it is closed
		for _, dir := range dirs {
			wd, err := unix.InotifyAddWatch(int(fd), dir, w.mask)
			if err != nil {
				if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
					w.log.Warn("cannot watch a directory for changes; it is looked at every upstream.files.poll instead", "dir", dir, "err", err)
				}
				delete(w.dirs, dir)
				continue
			}
			w.dirs[dir] = int32(wd)
		}
		for dir, wd := range w.dirs {
			if !slices.Contains(dirs, dir) {
				_, _ = unix.InotifyRmWatch(int(fd), uint32(wd)) // it may have gone by itself
				delete(w.dirs, dir)
			}
		}
	})
}

// read hears the system's reports until close.
func (w *watcher) read() {
	var buffer [16 << 10]byte
	for {
		n, err := w.file.Read(buffer[:])
		if err != nil {
			return
		}
		for rest := buffer[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			var e unix.InotifyEvent
			_, _ = binary.Decode(rest, binary.NativeEndian, &e) // it is long enough
			size := unix.SizeofInotifyEvent + int(e.Len)
			if w.complete(&e, strings.TrimRight(string(rest[unix.SizeofInotifyEvent:size]), "\x00")) {
				select {
				case w.hear <- struct{}{}:
				default:
				}
			}
			rest = rest[size:]
		}
	}
}

// complete reports whether an event is about something that is complete.
func (w *watcher) complete(e *unix.InotifyEvent, name string) bool {
	if e.Mask&unix.IN_IGNORED != 0 {
		return false
	}
	if e.Mask&unix.IN_CREATE == 0 {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for dir, wd := range w.dirs {
		if wd == e.Wd {
			info, err := os.Lstat(filepath.Join(dir, name))
			return err == nil && !info.Mode().IsRegular()
		}
	}
	return false
}
