package session

import (
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/cache"
)

// TestANewStreamDoesNotEndAGroup: a group without clients ends at once if a stream that was open already
// is alive. That a stream could be opened later proves nothing yet (NODE-10).
func TestANewStreamDoesNotEndAGroup(t *testing.T) {
	for _, test := range []struct {
		name        string
		open, after time.Duration // how long the stream has been open, and when the group ends
	}{
		{"an open stream", 10 * time.Second, 0},
		{"a later stream", 0, 5 * time.Second},
	} {
		l := listen(t)
		l.wants(cache.Cluster, "a")
		if test.open > 0 {
			l.pass(test.open)
		}
		l.core.Retire(false, l.now)
		for range test.after / time.Second {
			l.pass(time.Second - 1)
			if l.core.Over(l.now) {
				t.Errorf("%s: the group ends too early", test.name)
			}
			l.pass(1)
		}
		if l.pass(0); !l.core.Over(l.now) {
			t.Errorf("%s: the group goes on", test.name)
		}
	}
}
