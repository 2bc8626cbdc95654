package xdstest_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/xds-relay/xds-relay/internal/xdstest"
)

// TestEveryRuleIsStated prints which transcripts state each rule that the relay
// keeps so far, and fails on one that has neither a transcript nor a written reason.
func TestEveryRuleIsStated(t *testing.T) {
	reasons := maps.Clone(upstreamReasons)
	maps.Copy(reasons, downstreamReasons)
	rules := slices.Concat(upstreamRules, downstreamRules)
	slices.Sort(rules)
	xdstest.RuleTable(t, "testdata", slices.Compact(rules), reasons)
}
