package session

import (
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
	w.apply(typ, true, nil, w.res(typ, "a", "1", false))
	if got := said(w.next()); got != "EDS +a" {
		t.Fatal(got)
	}
	w.apply(typ, true, nil, w.res(typ, "b", "1", false))
	w.req(typ, "", "*", "n") // no ACK
	w.apply(typ, false, nil, w.res(typ, "n", "1", false))
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
