package xdstest

import (
	"slices"
	"strings"
	"testing"
)

func TestRuleTable(t *testing.T) {
	rules, err := Rules("testdata/self")
	if err != nil {
		t.Fatal(err)
	}
	if files := rules["UP-3"]; !slices.Equal(files, []string{"a-dead-transport-ends-what-it-carries.txt"}) {
		t.Errorf("UP-3 is shown by %v", files)
	}

	var all []string
	for id := range rules {
		all = append(all, id)
	}
	RuleTable(t, "testdata/self", append(all, "UP-99"), map[string]string{"UP-99": "needs a real network"})

	rules = map[string][]string{"UP-1": {"a.txt", "b.txt"}, "UP-9": {"c.txt"}}
	table, faults := ruleTable(rules, []string{"UP-1", "UP-2", "UP-3"}, map[string]string{"UP-2": "seen in the twin", "UP-8": "gone"})
	if want := "UP-1             a.txt b.txt\nUP-2             (seen in the twin)\nUP-3             -\n"; table != want {
		t.Errorf("got\n%swant\n%s", table, want)
	}
	if len(faults) != 3 || !strings.HasPrefix(faults[0], "UP-3:") || !strings.HasPrefix(faults[1], "UP-9:") || !strings.HasPrefix(faults[2], "UP-8:") {
		t.Errorf("faults: %q", faults)
	}
}
