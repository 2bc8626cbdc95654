package xdstest_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// openRules are rules of the contract that the relay does not keep yet, or not whole,
// and that no transcript states. Whoever writes one takes the rule off this list: if the
// relay does not keep it, the transcript says so itself (# open, package xdstest).
var openRules = map[string]string{}

// TestEveryRuleIsStated prints which transcripts state each rule that the relay
// keeps so far, and fails on one that has neither a transcript nor a written reason.
func TestEveryRuleIsStated(t *testing.T) {
	reasons := maps.Clone(upstreamReasons)
	maps.Copy(reasons, downstreamReasons)
	maps.Copy(reasons, openRules)
	stated, err := xdstest.Rules("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for id := range openRules {
		if files := stated[id]; len(files) > 0 {
			t.Errorf("%s is among openRules, and %q state it: take it off the list", id, files)
		}
	}
	rules := slices.Concat(upstreamRules, downstreamRules)
	slices.Sort(rules)
	xdstest.RuleTable(t, "testdata", slices.Compact(rules), reasons)
}
