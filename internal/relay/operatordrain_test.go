package relay

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-relay/xds-relay/downstream/session"
)

// ended counts the clients whose streams are over, all of which must have been told UNAVAILABLE.
func ended(t *testing.T, clients []*client) (n int) {
	t.Helper()
	for i, c := range clients {
		if _, err := c.over(); err != nil {
			if n++; status.Code(err) != codes.Unavailable {
				t.Errorf("client %d ended with %v", i, err)
			}
		}
	}
	return n
}

// TestStartDrain: a relay that an operator drains is not ready; without a time it serves everybody as before. With one
// it takes nobody new, and sends its clients away over that time, also from connections that they share, until the
// operator ends the drain. Then it takes them in again.
func TestStartDrain(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		const many = 40
		var all []*client
		conn := w.dial()
		for i := range many {
			if i%10 == 0 {
				conn = w.dial()
			}
			all = append(all, w.open(conn, fmt.Sprint("c", i), false))
		}
		synctest.Wait()
		w.publish()
		ready := func(want bool) {
			t.Helper()
			if is, why := w.relay.Ready(); is != want {
				t.Errorf("ready: %v, %s", is, why)
			}
		}
		ready(true)

		w.relay.StartDrain(false, 0)
		ready(false)
		late := w.open(w.dial(), "late", false)
		time.Sleep(time.Hour)
		if n := ended(t, append(all, late)); n > 0 {
			t.Errorf("%d clients were sent away, and nobody wants that", n)
		}
		all = append(all, late)

		if n := w.relay.StartDrain(true, time.Minute); n != len(all) {
			t.Errorf("the drain began with %d clients, want %d", n, len(all))
		}
		time.Sleep(30*time.Second + time.Millisecond)
		synctest.Wait()
		if n := ended(t, all); n < many/3 || n > 2*many/3 {
			t.Errorf("%d of %d clients are away after half of the time", n, len(all))
		}
		refused := w.open(w.dial(), "refused", false)
		synctest.Wait()
		if n := ended(t, []*client{refused}); n != 1 {
			t.Error("a newcomer is served")
		}
		w.publish()
		synctest.Wait()
		for i, c := range all {
			if _, err := c.over(); err == nil && !w.knew(c, time.Now()) {
				t.Errorf("client %d is not told what changes while it waits for its turn", i)
			}
		}

		w.relay.StopDrain()
		ready(true)
		left := len(all) - ended(t, all)
		time.Sleep(time.Hour)
		if n := w.relay.Count(); n != left || left == 0 {
			t.Errorf("%d clients are left, want %d", n, left)
		}
		back := w.open(conn, "back", false) // gRPC connects again, since the connection takes no streams any more
		synctest.Wait()
		if n := ended(t, []*client{back}); n != 0 {
			t.Error("a newcomer is refused after the drain")
		}

		if before, n := w.relay.Count(), w.relay.StartDrain(true, 0); n != before {
			t.Errorf("the drain began with %d clients, want %d", n, before)
		}
		synctest.Wait()
		if n := w.relay.Count(); n != 0 {
			t.Errorf("%d clients are left after a drain at once", n)
		}
		if n := w.seen.endings(session.Drained); n != len(all)+2 { // those, the refused one, and the one that came back
			t.Errorf("%d streams ended for the drain, want %d", n, len(all)+2)
		}
		if dials := w.dials.Load(); dials < 7 {
			t.Errorf("%d connections were made: those of the drained streams should take no others", dials)
		}
	})
}

// TestDrainAndClose: a relay that is drained can end at any moment.
func TestDrainAndClose(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		c := w.open(w.dial(), "c", false)
		w.open(w.dial(), "d", false)
		synctest.Wait()
		w.relay.StartDrain(true, time.Hour)
		w.relay.StopDrain()
		w.relay.StartDrain(true, time.Hour)
		synctest.Wait()
		begin := time.Now()
		w.relay.Close(0)
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("it took %v to end", took)
		}
		w.relay.StartDrain(true, 0) // it does nothing any more
		if ready, why := w.relay.Ready(); ready || why != "shutting down" {
			t.Errorf("ready: %v, %s", ready, why)
		}
		synctest.Wait()
		if _, err := c.over(); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	})
}
