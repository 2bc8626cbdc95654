package session

import (
	"fmt"
	"testing"
)

// While the versions that a client came with are judged, others may be written down and the
// table be made again: what has been judged by then is not judged once more.
func TestWhatIsJudgedMeanwhileIsNotYielded(t *testing.T) {
	versions := make(map[string]string)
	for i := range 100 {
		versions[fmt.Sprint("brought-", i)] = "v"
	}
	var e exact
	e.bring(versions)
	seen := make(map[string]bool)
	for v := range e.all(true) {
		if seen[v.name] || !v.brings() {
			t.Fatalf("%s is yielded again, or was judged", v.name)
		}
		seen[v.name] = true
		e.judge(e.find(v.name))
		for i := range 200 {
			e.note(fmt.Sprint("noted-", len(seen), "-", i), "v", true)
		}
		for name := range versions {
			if !seen[name] {
				seen[name] = true // as when one resource answers two names
				e.judge(e.find(name))
				break
			}
		}
	}
	if len(seen) != 100 || e.toJudge != 0 {
		t.Errorf("%d were looked at, and %d are left", len(seen), e.toJudge)
	}
}
