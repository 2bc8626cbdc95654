package xdstest

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Rules reads every transcript below dir and says, for each rule it cites, which files do. "(open)" behind a file says that
// the relay does not keep the rule yet as the file states it.
func Rules(dir string) (map[string][]string, error) {
	rules := map[string][]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".txt" {
			return err
		}
		t, err := Load(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		for _, id := range slices.Compact(slices.Sorted(slices.Values(t.Rules))) {
			if slices.Contains(t.Open, id) {
				rules[id] = append(rules[id], name+" (open)")
			} else {
				rules[id] = append(rules[id], name)
			}
		}
		return err
	})
	return rules, err
}

// RuleTable prints rule → transcripts, and fails on a rule that has neither a transcript nor a written reason, and on a
// transcript or reason whose rule is not among the ids.
func RuleTable(t *testing.T, dir string, ids []string, reasons map[string]string) {
	t.Helper()
	rules, err := Rules(dir)
	if err != nil {
		t.Fatal(err)
	}
	table, faults := ruleTable(rules, ids, reasons)
	t.Log("\n" + table)
	for _, fault := range faults {
		t.Error(fault)
	}
}

func ruleTable(rules map[string][]string, ids []string, reasons map[string]string) (table string, faults []string) {
	var b strings.Builder
	for _, id := range ids {
		entries := slices.Clone(rules[id])
		if reason := reasons[id]; reason != "" {
			entries = append(entries, "("+reason+")")
		}
		if len(entries) == 0 {
			entries = []string{"-"}
			faults = append(faults, id+": has no transcript; write one, or the reason why there is none")
		}
		fmt.Fprintf(&b, "%-16s %s\n", id, strings.Join(entries, " "))
	}
	for _, id := range slices.Sorted(maps.Keys(rules)) {
		if !slices.Contains(ids, id) {
			faults = append(faults, fmt.Sprintf("%s: cited by %s, but there is no such rule", id, strings.Join(rules[id], " ")))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(reasons)) {
		if !slices.Contains(ids, id) {
			faults = append(faults, id+": has a reason, but there is no such rule")
		}
	}
	return b.String(), faults
}
