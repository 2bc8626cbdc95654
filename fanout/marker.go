package fanout

import "github.com/xds-relay/xds-relay/cache"

// marker marks the changes of a type in the mailboxes of its subscribers, and collects the
// Subscribers to wake when the lock is released.
type marker struct {
	interest *interest
	woken    []*Subscriber
	// These are of one update: where the changes come from, for how many clients they are marked
	// for the first time, and for how many that are too far behind to be followed. measured counts the
	// clients that its probe waits for. followed: it has a trace or a probe.
	source            *cache.Source
	followed          bool
	concerned, behind int
	measured          int
}

// from sets the source of the changes that follow; nil: they are not traced.
func (m *marker) from(source *cache.Source) {
	m.source, m.concerned, m.behind, m.measured = source, 0, 0, 0
	m.followed = source.Traced() || source.Measured()
}

// adds reports whether the source says something that that of what is marked for a subscription does not. It is
// asked for each client, and mostly nobody follows the update.
func (m *marker) adds(marked *cache.Source) bool {
	if m.source == nil || marked == nil {
		return m.source != nil
	}
	return m.followed && marked.Adds(m.source)
}

// join adds the source to that of what is marked for a subscription.
func (m *marker) join(marked *cache.Source) *cache.Source {
	switch {
	case !marked.AddsTrace(m.source):
	case marked.Fits(m.source):
		m.concerned++
	default:
		m.behind++
	}
	switch {
	case !marked.AddsProbe(m.source):
	case marked != nil && m.source.At.Sub(marked.At) > MaxConvergence: // nobody looks into the mailbox
		return marked.With(m.source.Unmeasured())
	default:
		m.measured++
	}
	return marked.With(m.source)
}

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
