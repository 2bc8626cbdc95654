package memory

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTrim: memory is given back once, when a crowd has come and no other one follows; few clients are none.
func TestTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		freed := 0
		trim := &Trim{free: func() { freed++ }}
		come := func(clients int, within time.Duration) {
			for range clients {
				trim.Came()
				time.Sleep(within / time.Duration(clients))
			}
		}
		if come(500, 10*time.Second); freed != 0 {
			t.Errorf("given back %d times for 50 clients a second", freed)
		}
		come(2000, 4*time.Second)
		if freed != 0 {
			t.Errorf("given back %d times while clients come", freed)
		}
		if time.Sleep(10 * time.Second); freed != 1 {
			t.Errorf("given back %d times after a crowd, want once", freed)
		}
		come(1000, time.Second)
		trim.Close()
		if time.Sleep(10 * time.Second); freed != 1 {
			t.Error("given back after the end")
		}
	})
}
