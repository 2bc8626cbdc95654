package twin

import (
	"math/rand/v2"
	"testing"
)

// TestSotW plays games with a control plane that speaks SotW only, of which the relay
// knows or which it finds out: 5,000 operations, or others, as TestModel.
func TestSotW(t *testing.T) {
	newRun(5000, 3, func(r *rand.Rand) Script {
		s := draw(r)
		s.Settings.SotW = oneOf(r, "sotw", "auto")
		return s
	}).playAll(t)
}
