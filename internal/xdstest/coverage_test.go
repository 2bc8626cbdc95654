package xdstest_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/xds-relay/xds-relay/internal/xdstest"
)

// openRules are rules of the contract that the relay does not keep yet, or not whole,
// and that no transcript states.
var openRules = map[string]string{
	"UP-18":   "open",
	"UP-19":   "open",
	"UP-20":   "open",
	"H-42":    "open",
	"NODE-14": "open",
	"VALID-9": "open",
}

// TestEveryRuleIsStated prints which transcripts state each rule that the relay
// keeps so far, and fails on one that has neither a transcript nor a written reason.
func TestEveryRuleIsStated(t *testing.T) {
	reasons := maps.Clone(upstreamReasons)
	maps.Copy(reasons, downstreamReasons)
	maps.Copy(reasons, openRules)
	rules := slices.Concat(upstreamRules, downstreamRules)
	slices.Sort(rules)
	xdstest.RuleTable(t, "testdata", slices.Compact(rules), reasons)
}
