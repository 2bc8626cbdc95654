package session

import (
	"fmt"
	"testing"
)

// While what a client holds is looked at, other resources may be recorded, and the table be made again: none
// is looked at twice.
func TestWhatIsRecordedMeanwhileIsNotYieldedTwice(t *testing.T) {
	versions := make(map[string]string)
	for i := range 100 {
		versions[fmt.Sprint("claimed-", i)] = "v"
	}
	var e exact
	e.claim(versions)
	seen := make(map[string]bool)
	for v := range e.all() {
		if !v.claimed {
			continue
		}
		if seen[v.name] {
			t.Fatalf("%s is yielded again", v.name)
		}
		seen[v.name] = true
		e.unclaim(v)
		for i := range 200 {
			e.put(fmt.Sprint("sent-", len(seen), "-", i), "v", 1)
		}
		for name := range versions {
			if !seen[name] {
				seen[name] = true // as when one resource answers two names
				e.remove(name)
				break
			}
		}
	}
	if len(seen) != 100 || e.claims != 0 {
		t.Errorf("%d were looked at, and %d are left", len(seen), e.claims)
	}
	if want := 50 + 50*200; e.count != want {
		t.Errorf("%d resources are held, want %d", e.count, want)
	}
}
