package fanout

import (
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
)

// TestCheckFinds breaks each invariant of a type once.
func TestCheckFinds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(*index, *Subscription)
		want  string
	}{
		{"sound", func(*index, *Subscription) {}, ""},
		{"order", func(x *index, s *Subscription) { *x.interest.by.At(1) = append(*x.interest.by.At(1), &Subscription{}) }, "not in order"},
		{"a name's ID", func(x *index, s *Subscription) { x.named.Unpin(1) }, "its ID not kept"},
		{"names", func(x *index, s *Subscription) { x.interest.names++ }, "2 counted"},
		{"withheld", func(x *index, s *Subscription) { x.interest.withheld = 2 }, "2 have something withheld"},
		{"lingering", func(x *index, s *Subscription) { x.linger.add(1, stay{}) }, "lingers"},
		{"a set", func(x *index, s *Subscription) { x.wildcard.synced = true }, "is complete: true"},
		{"dirty", func(x *index, s *Subscription) { x.interest.remove(s, 1); x.named.Unpin(1) }, "to be looked at"},
		{"certain", func(x *index, s *Subscription) { x.wildcard.restored, x.wildcard.complete = true, true }, "counts as restored"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := NewHub(Config{})
			s := h.Subscribe(typ, NewSubscriber(func() {}))
			s.Delta([]string{"a"}, nil, epoch)
			h.Apply(Lane{Type: typ}, &cache.Update{})
			x := h.types.find(typ)
			tt.spoil(x, s)
			if broken := strings.Join(x.check(), "\n"); tt.want == "" && broken != "" || !strings.Contains(broken, tt.want) {
				t.Errorf("got %q, want %q", broken, tt.want)
			}
		})
	}
}
