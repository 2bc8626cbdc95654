package twin

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// TestSotW plays games with a control plane that speaks SotW only, of which the relay
// knows or which it finds out: 5,000 operations, the same ones every time, or as many
// as the environment says in TWIN_SOTW_STEPS.
func TestSotW(t *testing.T) {
	steps, played := 5000, 0
	if s := os.Getenv("TWIN_SOTW_STEPS"); s != "" {
		steps, _ = strconv.Atoi(s)
	}
	for n := uint64(0); played < steps && !t.Failed(); n++ {
		r := rand.New(rand.NewPCG(3, n))
		s := draw(r)
		s.Settings.SotW = oneOf(r, "sotw", "auto")
		played += len(s.Ops)
		if v := playPure(s, nil); len(v) > 0 {
			t.Logf("game %d", n)
			report(t, s, v)
		}
	}
	t.Logf("%d operations", played)
}
