package session

import (
	"fmt"
	"testing"

	"github.com/xds-relay/xds-relay/cache"
)

// TestAPositionPassesNothingUntold: a SotW client that owes an ACK gets the answer to a name that
// it asks for meanwhile. Changes of the wildcard's set do not go with it, and stay due: they come
// after the ACK (DOWN-DELTA-15, G3).
func TestAPositionPassesNothingUntold(t *testing.T) {
	w := newTurnWorld(t)
	typ := cache.Endpoint // not a full-state type
	w.req(typ, "", "*")
	w.apply(typ, true, nil, w.res(typ, "a", "1"))
	if got := said(w.next()); got != "EDS +a" {
		t.Fatal(got)
	}
	w.apply(typ, true, nil, w.res(typ, "b", "1"))
	w.req(typ, "", "*", "n") // no ACK
	w.apply(typ, false, nil, w.res(typ, "n", "1"))
	if got := said(w.next()); got != "EDS +n" {
		t.Errorf("%s; the client owes an ACK, and has asked for n", got)
	}
	w.req(typ, w.last[typ], "*", "n")
	if got := said(w.next()); got != "EDS +b" {
		t.Errorf("%s; b has not been told yet", got)
	}
	if got := said(w.next()); got != "-" {
		t.Errorf("%s; there is nothing more to tell", got)
	}
}

// TestNamesGivenUpUnderAWildcardAreForgotten: a SotW client that waits for a wildcard's set, and
// names one thing after the other that nobody knows, is not remembered with all of them (VALID-9).
func TestNamesGivenUpUnderAWildcardAreForgotten(t *testing.T) {
	for _, typ := range []cache.TypeURL{cache.Endpoint, cache.Cluster} {
		w := newTurnWorld(t)
		for i := range 100 {
			w.req(typ, "", "*", fmt.Sprint("n", i))
			w.next()
		}
		x := w.s.find(typ).base()
		if n := x.exact.count + len(x.touched.resend); n > 1 {
			t.Errorf("%s: %d of 100 names are remembered, and one is asked for", typ.Name(), n)
		}
	}
}
