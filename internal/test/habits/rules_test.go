package habits

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// contract is the document that states the rules of the protocol.
const contract = "docs/protocol.md"

// stated is the beginning of a rule in the contract: its anchor, and its id.
var stated = regexp.MustCompile(`^- (?:<a id="([^"]*)"></a>)?\*\*([A-Z][A-Z0-9-]*-\d+) `)

// statedRules are the ids of the contract's rules. It complains of a rule without an anchor,
// with the anchor of another one, and of an id that two rules have.
func statedRules(text string) (ids, complaints []string) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		m := stated.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if want := strings.ToLower(m[2]); m[1] != want {
			complaints = append(complaints, fmt.Sprintf(`%s:%d: the anchor of %s is %q: write <a id="%s"></a> before it, so that a citation can be a link`,
				contract, n, m[2], m[1], want))
		}
		if slices.Contains(ids, m[2]) {
			complaints = append(complaints, fmt.Sprintf("%s:%d: there are two rules %s", contract, n, m[2]))
		}
		ids = append(ids, m[2])
	}
	return ids, complaints
}

// families are those of the ids: "UP" of "UP-1".
func families(ids []string) map[string]bool {
	set := map[string]bool{}
	for _, id := range ids {
		set[id[:strings.LastIndexByte(id, '-')]] = true
	}
	return set
}

// citations are the words of a line that look like the id of a rule: a family of the contract and
// a number. A regular expression takes seconds for all files of the repository.
func citations(line string, families map[string]bool) (ids []string) {
	for end := 0; ; {
		dash := strings.IndexByte(line[end:], '-')
		if dash < 0 {
			return ids
		}
		dash += end
		begin := dash
		for begin > 0 && (isUpper(line[begin-1]) || isDigit(line[begin-1]) || line[begin-1] == '-') {
			begin--
		}
		for end = dash + 1; end < len(line) && isDigit(line[end]); end++ {
		}
		if end > dash+1 && families[line[begin:dash]] && (begin == 0 || !isLetter(line[begin-1])) {
			ids = append(ids, line[begin:end])
		}
	}
}

func isUpper(b byte) bool  { return 'A' <= b && b <= 'Z' }
func isLetter(b byte) bool { return isUpper(b) || 'a' <= b && b <= 'z' || b == '_' || isDigit(b) }
func isDigit(b byte) bool  { return '0' <= b && b <= '9' }

// unknownRules complains of cited rules that the contract does not have.
func unknownRules(name, text string, ids map[string]bool, families map[string]bool) (complaints []string) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		for _, id := range citations(line, families) {
			if !ids[id] {
				complaints = append(complaints, fmt.Sprintf("%s:%d: %s has no rule %s", name, n, contract, id))
			}
		}
	}
	return complaints
}

// set has the elements of a list.
func set(list []string) map[string]bool {
	m := map[string]bool{}
	for _, s := range list {
		m[s] = true
	}
	return m
}

// TestCitedRulesExist looks at documents, the Go code, transcripts and mutants. The tests of
// the table of rules itself invent some.
func TestCitedRulesExist(t *testing.T) {
	text, err := readDocument(contract)
	if err != nil {
		t.Fatal(err)
	}
	ids, complaints := statedRules(text)
	if len(ids) == 0 {
		t.Fatalf("%s states no rule in the form that this test knows", contract)
	}
	known, cited := set(ids), families(ids)
	for _, name := range committed(t) {
		if !slices.Contains([]string{".md", ".go", ".txt", ".yaml"}, filepath.Ext(name)) ||
			slices.Contains([]string{"internal/test/habits/rules_test.go", "internal/test/xdstest/rules_test.go"}, name) {
			continue
		}
		if text, err := readText(name); err == nil {
			complaints = append(complaints, unknownRules(name, text, known, cited)...)
		}
	}
	for _, complaint := range complaints {
		t.Error(complaint)
	}
}

func TestCitedRulesExistCanFail(t *testing.T) {
	ids, complaints := statedRules("## 1. UP\n- <a id=\"up-1\"></a>**UP-1 MUST** …\n- **UP-2 MAY** …\n- <a id=\"v2-1\"></a>**V2-1 MUST** …\n- <a id=\"h-1\"></a>**H-2 Late.** …\n- <a id=\"up-1\"></a>**UP-1 MUST** …\n")
	if want := []string{"UP-1", "UP-2", "V2-1", "H-2", "UP-1"}; !slices.Equal(ids, want) {
		t.Errorf("rules %q, want %q", ids, want)
	}
	if want := []string{"docs/protocol.md:3", "docs/protocol.md:5", "docs/protocol.md:6"}; !slices.Equal(places(complaints), want) {
		t.Errorf("complaints at %q, want %q", places(complaints), want)
	}
	const text = "UP-1, V2-1, H-2/-3 (UP-3)\nSHA-3, http-2, XUP-7 UP-\nH-22, V2-9\n"
	if got, want := places(unknownRules("a.go", text, set(ids), families(ids))), []string{"a.go:1", "a.go:3", "a.go:3"}; !slices.Equal(got, want) {
		t.Errorf("complaints at %q, want %q", got, want)
	}
}
