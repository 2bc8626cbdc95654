package fanout

import "github.com/xds-relay/xds-relay/cache"

// marker marks the changes of a type in the mailboxes of those who subscribe to what changed, and
// keeps whom to wake when the lock is released.
type marker struct {
	interest *interest
	woken    []*Subscriber
	// Of one update: where the changes come from, how many clients they are marked for the first
	// time, and how many of those are too far behind to be followed.
	source            *cache.Source
	concerned, behind int
}

// from says where changes come from; nil: from nowhere that is followed.
func (m *marker) from(source *cache.Source) { m.source, m.concerned, m.behind = source, 0, 0 }

// concerns counts a client for which an update is marked for the first time.
func (m *marker) concerns(followed bool) {
	if followed {
		m.concerned++
	} else {
		m.behind++
	}
}

// mark marks a name, or the wildcard, for all who subscribe to it.
func (m *marker) mark(id cache.ID, k kind) {
	for _, s := range m.interest.of(id) {
		m.one(s, id, k)
	}
}

// one marks it for one of them.
func (m *marker) one(s *Subscription, id cache.ID, k kind) {
	if s.subscriber.mark(s, id, k) {
		m.woken = append(m.woken, s.subscriber)
	}
}

// take returns whom to wake.
func (m *marker) take() []*Subscriber {
	woken := m.woken
	m.woken = nil
	return woken
}

func wakeAll(woken []*Subscriber) {
	for _, s := range woken {
		s.wake()
	}
}
