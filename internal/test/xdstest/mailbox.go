package xdstest

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// mailbox keeps what was heard until somebody asks.
type mailbox struct {
	mu     sync.Mutex
	events []Event
	fault  error         // the first thing that must never happen
	wake   chan struct{} // one slot
}

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1)} }

func (m *mailbox) put(fault error, events ...Event) {
	m.mu.Lock()
	m.events = append(m.events, events...)
	if m.fault == nil {
		m.fault = fault
	}
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// rename gives a stream the name of one that is over. It does so only if the stream's beginning is still here, which nobody has
// heard of then, and reports whether it has.
func (m *mailbox) rename(actor, over string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	begins := slices.IndexFunc(m.events, func(e Event) bool { return e.Actor == actor && strings.HasPrefix(e.Text, "open") })
	if begins < 0 {
		return false
	}
	for i := begins; i < len(m.events); i++ {
		if m.events[i].Actor == actor {
			m.events[i].Actor = over
		}
	}
	m.events = slices.Insert(m.events, begins, Event{Actor: over, Text: "closed"})
	return true
}

// Heard takes everything that has come in since the last call. The error is a fault of the peer, and stays.
func (m *mailbox) Heard() ([]Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.events
	m.events = nil
	return events, m.fault
}

// Next takes one event and waits for it if need be; for tests outside a bubble. One goroutine at a time may call it.
func (m *mailbox) Next(ctx context.Context) (Event, error) {
	for {
		m.mu.Lock()
		if m.fault != nil {
			defer m.mu.Unlock()
			return Event{}, m.fault
		}
		if len(m.events) > 0 {
			event := m.events[0]
			m.events = m.events[1:]
			m.mu.Unlock()
			return event, nil
		}
		m.mu.Unlock()
		select {
		case <-m.wake:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}
