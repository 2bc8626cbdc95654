package cache

import (
	"testing"
	"time"
)

// TestProbe: a probe knows how long the slowest of its clients took, and goes with its change through other changes.
func TestProbe(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	is := func(p *Probe, after time.Duration, all bool) {
		t.Helper()
		if got, done := p.After(); done != all || got != after {
			t.Errorf("it took %v, and all are done: %v; want %v, %v", got, done, after, all)
		}
	}
	first, second := &Probe{Type: Cluster, At: at(10)}, &Probe{Type: Cluster, At: at(20)}
	plain, trace := NewSource(at(1), nil), NewSource(at(2), "trace")
	one, two := NewSource(at(10), nil).Probed(first), NewSource(at(20), "2").Probed(second)
	first.Concerns(3)
	second.Concerns(1)

	var none *Source
	if plain.Measured() || none.Measured() || !one.Measured() || one.Traced() {
		t.Error("it says wrongly what is measured")
	}
	if !none.Adds(one) || !plain.Adds(one) || one.Adds(one) || one.Adds(plain) || !one.Adds(two) || one.With(two).Adds(two) || one.With(trace).Adds(one) {
		t.Error("it says wrongly what adds something")
	}
	none.Done(at(11))
	plain.Done(at(11))
	one.Done(at(15))
	is(first, 5*time.Second, false)
	both := trace.With(one).With(two)
	if both.At != at(2) || len(both.Traces) != 2 {
		t.Errorf("all three are %+v", both)
	}
	both.Done(at(22))
	is(first, 12*time.Second, false)
	is(second, 2*time.Second, true)
	one.Done(at(11))
	is(first, 12*time.Second, true)

	if rest := both.Unmeasured(); rest.Measured() || len(rest.Traces) != 2 || !both.Measured() || plain.Unmeasured() != plain || none.Unmeasured() != nil {
		t.Error("without probes it is another source")
	}
	third := &Probe{Type: Cluster, At: at(30)}
	third.Concerns(2)
	left := NewSource(at(30), nil).Probed(third)
	if left.Leave().Measured() || none.Leave() != nil {
		t.Error("it is measured what a client has left")
	}
	is(third, 0, false)
	left.Leave()
	is(third, 0, true)
	first.GiveUp()
	if s := one.With(two); len(s.probes) != 1 || s.probes[0] != second {
		t.Error("a probe is kept that nobody waits for")
	}
}
