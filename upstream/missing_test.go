package upstream

import (
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// TestMissingIsToldOnce: what becomes missing on a stream is one line for each type,
// with all that came within a second of the first.
func TestMissingIsToldOnce(t *testing.T) {
	m := make(missed)
	over := make(map[session.StreamID]bool)
	asked := func(id session.StreamID, t cache.TypeURL) bool { return t != "invented" && !over[id] }
	now := time.Unix(1000, 0)
	m.add(1, cache.Endpoint, 2, "a", now)
	m.add(1, cache.Route, 1, "r", now.Add(gatherMissing/2))
	m.add(1, cache.Endpoint, 3, "b", now.Add(gatherMissing/2))
	m.add(2, cache.Endpoint, 1, "c", now.Add(gatherMissing/2))
	if got := m.due(now.Add(gatherMissing-1), asked); got != nil {
		t.Errorf("%v are told too early", got)
	}
	if at := m.deadline(time.Time{}); !at.Equal(now.Add(gatherMissing)) {
		t.Errorf("the first is due at %v", at)
	}
	if got := m.due(now.Add(gatherMissing), asked); len(got) != 1 || got[0].count != 5 || got[0].first != "a" || got[0].typ != cache.Endpoint {
		t.Errorf("%+v are told, want the five of EDS", got)
	}
	m.add(1, cache.Endpoint, 1, "d", now.Add(2*gatherMissing))
	over[1] = true
	if got := m.due(now.Add(gatherMissing), asked); len(got) != 1 || got[0].first != "r" {
		t.Errorf("%+v are told at the end, want r alone", got)
	}
	m.add(3, "invented", 1, "e", now)
	if m.due(now.Add(gatherMissing), asked); len(m) != 1 {
		t.Errorf("%d types are kept, of which one is asked for", len(m))
	}
	over[2] = true
	if got := m.due(now.Add(gatherMissing), asked); len(got) != 1 || len(m) != 0 || !m.deadline(time.Time{}).IsZero() {
		t.Errorf("%+v are told at the end, and %d kept", got, len(m))
	}
}
