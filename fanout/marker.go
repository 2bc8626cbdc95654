package fanout

import "github.com/xds-relay/xds-relay/cache"

// marker marks the changes of a type in the mailboxes of its subscribers, and collects the
// Subscribers to wake when the lock is released.
type marker struct {
	interest *interest
	woken    []*Subscriber
	// These are of one update: where the changes come from, for how many clients they are marked
	// for the first time, and for how many that are too far behind to be followed.
	source            *cache.Source
	concerned, behind int
}

// from sets the source of the changes that follow; nil: they are not traced.
func (m *marker) from(source *cache.Source) { m.source, m.concerned, m.behind = source, 0, 0 }

// mark marks a name, or the wildcard, for all its subscribers.
func (m *marker) mark(id cache.ID, k kind) {
	for _, s := range m.interest.of(id) {
		m.markOne(s, id, k)
	}
}

func (m *marker) markOne(s *Subscription, id cache.ID, k kind) {
	if s.subscriber.mark(s, id, k) {
		m.woken = append(m.woken, s.subscriber)
	}
}
