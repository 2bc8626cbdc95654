package twin

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSotW plays games with a control plane that speaks SotW only, of which the relay
// knows or which it finds out: 5,000 operations, or others, as TestModel.
func TestSotW(t *testing.T) {
	newRun(5000, 3, func(r *rand.Rand) Script {
		s := draw(r)
		s.Settings.SotW = oneOf(r, "sotw", "auto")
		// What kinds of server there are is about Delta, and about one server.
		s.Settings.Server, s.Settings.Second = "", ""
		if s.Settings.SotW == "auto" { // that there is no Delta must be heard at once
			s.Ops = slices.DeleteFunc(s.Ops, func(o Op) bool { return o.Verb == "hang" || o.Verb == "wake" })
		}
		return s
	}).playAll(t)
}
