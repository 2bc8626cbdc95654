package fanout

import "sync"

// OnLock is told when the lock of a type is taken and when it is given back, so that benchmarks
// count what is done under it; nil: nobody is. It is set while nothing runs.
//
// It is here although only a benchmark uses it: what is measured are requests and responses of
// package downstream/session, which cannot reach into this one, nor this one import it. Go's mutex
// profile counts only how long others waited, and a build tag would leave the benchmark to rot
// outside of what is vetted and linted.
var OnLock func(taken bool)

// lock is that of a type.
type lock struct{ mu sync.Mutex }

func (l *lock) Lock() {
	if l.mu.Lock(); OnLock != nil {
		OnLock(true)
	}
}

func (l *lock) Unlock() {
	if OnLock != nil {
		OnLock(false)
	}
	l.mu.Unlock()
}
