package session

import (
	"sync"

	"github.com/xds-relay/xds-relay/cache"
)

// Answers is what is known of how each control plane answers, from whatever group: which types, so that these
// need no trial (UP-21) and can be asked for before a client does (UP-28), and whether it sends a wildcard's set in
// one response (RECON-16). It lives as long as the process; Habits also outlive that, on disk. Groups share it, and it may be used
// from any goroutine.
type Answers struct {
	mu     sync.RWMutex
	types  map[string]map[cache.TypeURL]struct{} // by the entry's name
	habits map[string]Habit
}

// Habit is how an entry sends a wildcard's set.
type Habit string

const (
	HabitUnknown Habit = ""
	HabitWhole   Habit = "whole" // in one response, as far as has been seen
	HabitSplit   Habit = "split" // in several, at least once
)

// maxAnswers bounds the types that are remembered of an entry. Clients can invent types, and a server
// may answer them all. What is not remembered is tried again.
const maxAnswers = 1000

// NewAnswers returns Answers in which no entry has answered anything.
func NewAnswers() *Answers {
	return &Answers{types: make(map[string]map[cache.TypeURL]struct{}), habits: make(map[string]Habit)}
}

// Add notes that an entry has answered a type.
func (a *Answers) Add(entry string, t cache.TypeURL) {
	if a == nil || a.has(entry, t) {
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

// sends notes how an entry has sent a set. One that was ever split is never known as whole again.
func (a *Answers) sends(entry string, as Habit) {
	if a == nil || a.habit(entry) == as || a.habit(entry) == HabitSplit {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.habits[entry] = as
}

// habit is how an entry sends a set. A nil Answers learns nothing: a set counts as split.
func (a *Answers) habit(entry string) Habit {
	if a == nil {
		return HabitSplit
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.habits[entry]
}

// Habits returns what was learnt of entries, by name, to be kept.
func (a *Answers) Habits() map[string]string {
	if a == nil {
		return nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	habits := make(map[string]string, len(a.habits))
	for entry, as := range a.habits {
		habits[entry] = string(as)
	}
	return habits
}

// Recall takes in what Habits has returned.
func (a *Answers) Recall(habits map[string]string) {
	for entry, as := range habits {
		if as := Habit(as); as == HabitWhole || as == HabitSplit {
			a.sends(entry, as)
		}
	}
}
