package xdstest_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/internal/test/xdstest"
)

// contract is the document with the rules. What stands between the two lines is generated.
const (
	contract = "../../../docs/protocol.md"
	begins   = "<!-- The table is generated: go test ./internal/test/xdstest -run Document -update -->\n"
	ends     = "<!-- End of the table. -->\n"
)

// lacks says what is missing of rules that are built in part.
var lacks = map[string]string{
	"NAME-18": "locators are refused",
}

var rule = regexp.MustCompile(`(?m)^- <a id="[^"]*"></a>\*\*([A-Z][A-Z0-9-]*-\d+) `)

// TestDocument: the table at the end of docs/protocol.md says of each rule what shows it, and whether it is built.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(contract)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begun := strings.Cut(string(text), begins)
	_, tail, ended := strings.Cut(rest, ends)
	if !begun || !ended {
		t.Fatalf("%s has no table: write the lines %q and %q", contract, begins, ends)
	}
	stated, err := xdstest.Rules("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range rule.FindAllStringSubmatch(head, -1) {
		ids = append(ids, m[1])
	}
	table, faults := coverage(ids, stated)
	for _, fault := range faults {
		t.Error(fault)
	}
	want := head + begins + table + ends + tail
	switch {
	case want == string(text):
	case flag.Lookup("update").Value.String() == "true":
		if err := os.WriteFile(contract, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table in %s is not what transcripts, reasons and lists say; run go test ./internal/test/xdstest -run Document -update", contract)
	}
}

// coverage returns the table, and what is wrong with the lists.
func coverage(ids []string, stated map[string][]string) (table string, faults []string) {
	kept := slices.Concat(upstreamRules, downstreamRules)
	var b strings.Builder
	b.WriteString("\n| Rule | Shown by | Built |\n|---|---|---|\n")
	for _, id := range ids {
		built := "yes"
		switch missing := lacks[id]; {
		case !slices.Contains(kept, id):
			built = "**no**"
			faults = append(faults, id+": is in no list of rules that are kept; add it to one")
		case missing != "":
			built = "in part: " + missing
		}
		shown := specific(stated, id)
		if reason := cmp.Or(upstreamReasons[id], downstreamReasons[id], openRules[id]); reason != "" {
			shown = append(shown, strings.ReplaceAll(reason, "|", "\\|"))
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s |\n", id, strings.ToLower(id), strings.Join(shown, "; "), built)
	}
	b.WriteString("\n")
	for id := range lacks {
		if !slices.Contains(ids, id) {
			faults = append(faults, id+": is said not to be built as a whole, and the document has no such rule")
		}
	}
	slices.Sort(faults)
	return b.String(), faults
}

// specific returns links to the transcripts that state a rule and the fewest others, two at most: a table of all would
// change with each of them.
func specific(stated map[string][]string, id string) (links []string) {
	others := map[string]int{}
	for _, files := range stated {
		for _, file := range files {
			others[strings.TrimSuffix(file, open)]++
		}
	}
	files := slices.SortedFunc(slices.Values(stated[id]), func(a, b string) int {
		return cmp.Or(others[strings.TrimSuffix(a, open)]-others[strings.TrimSuffix(b, open)], strings.Compare(a, b))
	})
	const most = 2
	for _, file := range files[:min(len(files), most)] {
		path := strings.TrimSuffix(file, open)
		links = append(links, fmt.Sprintf("[%s](../internal/test/xdstest/testdata/%s)%s", strings.TrimSuffix(path, ".txt"), path, strings.TrimPrefix(file, path)))
	}
	if len(files) > most {
		links = append(links, "…")
	}
	return links
}

// open is behind the name of a transcript that says what the relay does not do yet.
const open = " (open)"

func TestCoverage(t *testing.T) {
	table, faults := coverage([]string{"UP-12", "WILD-1", "NAME-18", "NO-1"}, map[string][]string{
		"WILD-1":  {"a.txt", "b.txt (open)", "c.txt", "d.txt"},
		"WILD-2":  {"a.txt", "c.txt"},
		"NAME-18": {"c.txt"},
	})
	for _, want := range []string{
		"| [UP-12](#up-12) | " + upstreamReasons["UP-12"] + " | yes |\n",
		"| [WILD-1](#wild-1) | [b](../internal/test/xdstest/testdata/b.txt) (open); [d](../internal/test/xdstest/testdata/d.txt); … | yes |\n",
		"| [NAME-18](#name-18) | [c](../internal/test/xdstest/testdata/c.txt) | in part: " + lacks["NAME-18"] + " |\n",
		"| [NO-1](#no-1) |  | **no** |\n",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	if !slices.ContainsFunc(faults, func(f string) bool { return strings.HasPrefix(f, "NO-1:") }) {
		t.Errorf("faults %q: NO-1 is in no list", faults)
	}
	if _, faults := coverage(nil, nil); !slices.ContainsFunc(faults, func(f string) bool { return strings.HasPrefix(f, "NAME-18:") }) {
		t.Errorf("faults %q: the document has no NAME-18", faults)
	}
}
