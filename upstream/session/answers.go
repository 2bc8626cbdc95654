package session

import (
	"sync"

	"github.com/xds-relay/xds-relay/cache"
)

// Answers has the types that each control plane has answered, in whatever group, while the process
// lives. Such a type needs no trial (UP-21). Groups share it, and it may be used from any goroutine.
type Answers struct {
	mu    sync.RWMutex
	types map[string]map[cache.TypeURL]struct{} // by the entry's name
}

// maxAnswers bounds the types that are remembered of an entry. Clients can invent types, and a server
// may answer them all. What is not remembered is tried again.
const maxAnswers = 1000

// NewAnswers returns Answers in which no entry has answered anything.
func NewAnswers() *Answers { return &Answers{types: make(map[string]map[cache.TypeURL]struct{})} }

// Add notes that an entry has answered a type.
func (a *Answers) Add(entry string, t cache.TypeURL) {
	if t.Basic() || a.has(entry, t) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.types[entry]
	if of == nil {
		of = make(map[cache.TypeURL]struct{})
		a.types[entry] = of
	}
	if len(of) < maxAnswers {
		of[t] = struct{}{}
	}
}

// has reports whether an entry has answered a type. A nil Answers has every answer: nothing is tried.
func (a *Answers) has(entry string, t cache.TypeURL) bool {
	if a == nil {
		return true
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	_, has := a.types[entry][t]
	return has
}
