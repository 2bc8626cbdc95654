package fanout

import (
	"slices"
	"sync"

	"github.com/xds-relay/xds-relay/cache"
)

// Subscriber is the mailbox of one downstream stream: what has changed for it since it last looked.
// Its size is bounded by the names that the stream subscribes to, however slow the client is
// (H-12).
type Subscriber struct {
	// TakesTTL means that the stream's client knows TTLs, and is sent renewals (TTL-6). AsksForSources
	// means that the stream wants the Source of each change, and is counted among the clients that an
	// update concerns. Both are set before the first Subscribe.
	TakesTTL, AsksForSources bool
	// Holder is whose share the stream takes of what all clients have together (VALID-8, UP-21). It is
	// set before the first Subscribe.
	Holder string

	wake func()

	mu    sync.Mutex
	dirty []*Subscription
	taken []*Subscription // what Take has returned
}

// NewSubscriber returns the mailbox of a stream. wake is called, outside all locks and from any
// goroutine, when an empty mailbox gets something; it must not block.
func NewSubscriber(wake func()) *Subscriber { return &Subscriber{wake: wake} }

// Marks are the changes noted for one Subscription. The Subscription may have given up a name since
// it was marked; the reader checks.
type Marks struct {
	// Content are names whose answer may have changed.
	Content []cache.ID
	// Errors are names with an error to send.
	Errors []cache.ID
	// Renewed are names whose TTL was renewed (TTL-4, TTL-12), or which clients drop unless they are sent
	// them again (TTL-13).
	Renewed []cache.ID
	// Wildcard: the wildcard's set has changed, or whether it is complete or available.
	Wildcard bool
	// WildcardRenewed: the same of a member of that set.
	WildcardRenewed bool
	// Again: no resource has changed, but something has come that the client waited for:
	// confirmation of something restored (RECON-19), or upstream itself (ERR-7).
	Again bool
	// Source is where the changes come from.
	Source *cache.Source
}

// kind is what a mark says.
type kind uint8

const (
	content kind = iota
	failure
	renewed  // for those who know TTLs
	repeated // for everybody
	recheck
)

// mark notes a change of a name, or of the wildcard's set. woken reports whether the Subscriber has
// to be woken. The caller holds the lock of s's index.
func (m *Subscriber) mark(s *Subscription, id cache.ID, k kind) (woken bool) {
	if k == renewed && !m.TakesTTL {
		return false // TTL-7
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	first := len(m.dirty) == 0
	if by := &s.index.marks; m.AsksForSources && by.adds(s.marks.Source) {
		s.marks.Source = by.join(s.marks.Source)
	}
	if !s.dirty {
		s.dirty = true
		m.dirty = append(m.dirty, s)
	}
	add := func(ids []cache.ID) []cache.ID {
		return s.bounded(append(ids, id), 2*len(s.names.ids)+s.index.hub.config.Bounds.Marks)
	}
	switch {
	case k == recheck:
		s.marks.Again = true
	case (k == renewed || k == repeated) && id == wildcardID:
		s.marks.WildcardRenewed = true
	case k == renewed, k == repeated:
		s.marks.Renewed = add(s.marks.Renewed)
	case id == wildcardID:
		s.marks.Wildcard = true
	case k == failure:
		s.marks.Errors = add(s.marks.Errors)
	default:
		s.marks.Content = add(s.marks.Content)
	}
	return first
}

// bounded drops repeated IDs, and names that were given up meanwhile, if there are more than most.
func (s *Subscription) bounded(ids []cache.ID, most int) []cache.ID {
	if len(ids) <= most {
		return ids
	}
	return slices.DeleteFunc(distinct(ids), func(id cache.ID) bool {
		_, has := slices.BinarySearch(s.names.ids, id)
		return !has
	})
}

// Take returns the Subscriptions that have marks; the slice is valid until the next call. The
// caller has to take the marks of each with View.Marks.
func (m *Subscriber) Take() []*Subscription {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.taken)
	for _, s := range m.dirty {
		s.dirty = false
	}
	m.dirty, m.taken = m.taken[:0], m.dirty
	return m.taken
}

// Changed reports whether there is a mark of a change that nobody has looked at. It may be called
// within a Read of another Subscription.
func (s *Subscription) Changed() bool {
	s.subscriber.mu.Lock()
	defer s.subscriber.mu.Unlock()
	return s.marks.Wildcard || len(s.marks.Content) > 0
}

// Marks returns the marks of the Subscription, and clears them. Marks and View are of one instant,
// so no change is sent twice, once because it is seen and once because it is marked.
func (v View) Marks() Marks {
	m := v.s.subscriber
	m.mu.Lock()
	defer m.mu.Unlock()
	marks := v.s.marks
	v.s.marks = Marks{}
	return marks
}
