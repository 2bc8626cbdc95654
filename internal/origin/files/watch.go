package files

// What hears of changes is the system's own on Linux, and a library's elsewhere: watch_linux.go and watch_other.go.

// changes has a value when something has changed; nil: nothing is ever heard.
func (w *watcher) changes() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.hear
}

// drain forgets what was heard.
func (w *watcher) drain() {
	select {
	case <-w.changes():
	default:
	}
}
