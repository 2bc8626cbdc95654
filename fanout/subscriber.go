package fanout

import (
	"slices"
	"sync"

	"github.com/xds-relay/xds-relay/cache"
)

// Subscriber is the mailbox of one downstream stream: what has changed for it
// since it last looked. Its size is bounded by the names the stream subscribes
// to, however slow the client is (H-12).
type Subscriber struct {
	wake func()

	mu    sync.Mutex
	dirty []*Subscription
}

// NewSubscriber returns the mailbox of a stream. wake is called, outside all
// locks and from any goroutine, when an empty mailbox gets something; it must not
// block.
func NewSubscriber(wake func()) *Subscriber { return &Subscriber{wake: wake} }

// Marks are the changes noted for one Subscription. An ID stands for a name the
// Subscription may no longer have; its reader checks.
type Marks struct {
	// Content are names whose answer may have changed.
	Content []cache.ID
	// Errors are names with an error to be told of.
	Errors []cache.ID
	// Wildcard: the wildcard's set changed, or its state.
	Wildcard bool
}

// Any reports whether anything is marked.
func (m *Marks) Any() bool { return len(m.Content) > 0 || len(m.Errors) > 0 || m.Wildcard }

type mark struct {
	id       cache.ID
	isError  bool
	wildcard bool
}

// mark notes a change; it returns the Subscriber if it has to be woken. Its
// caller holds the lock of s's index.
func (m *Subscriber) mark(s *Subscription, k mark) *Subscriber {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := len(m.dirty) == 0
	if !s.marks.Any() {
		m.dirty = append(m.dirty, s)
	}
	switch {
	case k.wildcard:
		s.marks.Wildcard = true
	case k.isError:
		s.marks.Errors = bounded(append(s.marks.Errors, k.id), len(s.ids))
	default:
		s.marks.Content = bounded(append(s.marks.Content, k.id), len(s.ids))
	}
	if first {
		return m
	}
	return nil
}

// bounded drops repetitions once there must be some.
func bounded(ids []cache.ID, names int) []cache.ID {
	if len(ids) <= 2*names+16 {
		return ids
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Take returns the Subscriptions for which something is marked. Their marks stay
// with them: whoever takes has to look at each, with View.Marks.
func (m *Subscriber) Take() []*Subscription {
	m.mu.Lock()
	defer m.mu.Unlock()
	dirty := m.dirty
	m.dirty = nil
	return dirty
}

// Marks hands over what is marked for the Subscription. Marks and View are of one
// instant, so that no change is told twice, once because it is seen and once
// because it is marked.
func (v View) Marks() Marks {
	m := v.s.subscriber
	m.mu.Lock()
	defer m.mu.Unlock()
	marks := v.s.marks
	v.s.marks = Marks{}
	return marks
}
