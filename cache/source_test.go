package cache

import (
	"testing"
	"time"
)

// TestSources: the oldest update says since when a client waits, each traced one is listed
// once, and there is room for so many.
func TestSources(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	one, two, plain := NewSource(at(1), "1"), NewSource(at(2), "2"), NewSource(at(3), nil)
	var none *Source
	if none.Adds(nil) || !none.Adds(one) || one.Adds(one) || !one.Adds(two) || one.Adds(plain) || one.Adds(nil) || one.With(two).Adds(two) {
		t.Error("it says wrongly what adds something")
	}
	if none.With(nil) != nil || none.With(one) != one || one.With(nil) != one || one.With(plain) != one || plain.With(plain) != plain {
		t.Error("nothing is added, and something is made")
	}
	if s := one.With(two); s.At != at(1) || len(s.Traces) != 2 || s.Traces[0] != "1" || s.Traces[1] != "2" || s.Left != 0 || len(one.Traces) != 1 {
		t.Errorf("both are %+v", s)
	}
	if none.Traced() || plain.Traced() || !one.Traced() || len(none.List()) != 0 || len(one.List()) != 1 {
		t.Error("it says wrongly what is traced")
	}
	many := one
	for n := range 2 * maxTraces {
		many = many.With(NewSource(at(n), n))
	}
	if len(many.Traces) != maxTraces || many.Left != maxTraces+1 || many.At != at(1) || many.Adds(NewSource(at(0), 2*maxTraces-1)) {
		t.Errorf("of %d there are %d listed, and %d are left", 2*maxTraces+1, len(many.Traces), many.Left)
	}
	if many.Fits(one) || !one.Fits(two) || !many.Fits(plain) || !none.Fits(many) {
		t.Error("it says wrongly what there is room for")
	}
	if twice := many.With(many.With(two)); len(twice.Traces) != maxTraces || twice.Left != many.Left+1+many.Left+maxTraces {
		t.Errorf("of two that are full there are %d listed, and %d left", len(twice.Traces), twice.Left)
	}
}
