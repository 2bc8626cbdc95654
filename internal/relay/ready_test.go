package relay

import (
	"reflect"
	"testing"
	"testing/synctest"
)

// TestReadinessKeepsNoBodies: the relay's own subscription, for readiness, keeps no body that must not be cached.
func TestReadinessKeepsNoBodies(t *testing.T) {
	inWorld(t, []string{"downstream.ready_types=[CDS]"}, func(w *world) {
		synctest.Wait()
		w.respond("CDS n0@1{do_not_cache}")
		synctest.Wait()
		if ready, why := w.relay.Ready(); !ready {
			t.Fatal(why)
		}
		for i := range 50 {
			w.respond("CDS n%d@1{do_not_cache} -n%d", i+1, i)
			synctest.Wait()
		}
		if n := reflect.ValueOf(w.relay.ready.subs[0]).Elem().FieldByName("parcels").Len(); n > 1 {
			t.Errorf("%d bodies are kept, of one resource that exists", n)
		}
	})
}
