package session

import (
	"slices"
	"testing"

	"github.com/xds-relay/xds-relay/fanout"
)

// TestNamed: what a SotW request has changed is found whatever the order and however often a
// name stands in it.
func TestNamed(t *testing.T) {
	var s sotwState
	for _, step := range []struct {
		listed, added, gone []string
		changed, wildcard   bool
	}{
		{},
		{listed: []string{"c", "a", "b"}, added: []string{"a", "b", "c"}, changed: true},
		{listed: []string{"c", "a", "b"}},
		{listed: []string{"b", "a", "c"}},
		{listed: []string{"b", "b", "a", "c", "c"}},
		{listed: []string{"d", "c", "*", "b", "c"}, added: []string{"d"}, gone: []string{"a"}, changed: true, wildcard: true},
		{listed: []string{"c", "d", "b"}, changed: true},
		{gone: []string{"b", "c", "d"}, changed: true},
	} {
		n := s.list(step.listed)
		want := fanout.Names{Some: len(step.listed) > 0, Wildcard: step.wildcard, Added: step.added, Gone: step.gone}
		if n.changed != step.changed || n.Some != want.Some || n.Wildcard != want.Wildcard || !slices.Equal(n.Added, want.Added) || !slices.Equal(n.Gone, want.Gone) {
			t.Errorf("%q: %+v, changed: %v; want %+v, %v", step.listed, n.Names, n.changed, want, step.changed)
		}
		s.names = n.listed
	}
}
