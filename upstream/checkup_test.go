package upstream

import (
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/upstream/session"
)

// TestVerdicts: what the replies to a row of checks mean. U is UNAVAILABLE, u the same
// while responses came, a any other answer, - none, . a question that could not be put; a
// bar begins another connection of the entry.
func TestVerdicts(t *testing.T) {
	replies := map[rune]reply{'U': replyUnavailable, 'u': replyUnavailable, 'a': replyOther, '-': replyNone, '.': replyUnasked}
	letters := map[session.CheckResult]string{session.There: "T", session.Silent: "S", session.Unclear: "?"}
	for _, test := range []struct{ row, want, why string }{
		{"a-.", "TS?", "an answer, silence, and nothing asked"},
		{"U", "?", "it may be the health service that is unavailable"},
		{"aU", "TS", "it used to answer"},
		{"au", "T?", "it used to answer, but it sends responses"},
		{"a|U", "T|?", "another connection used to answer"},
		{"UUU", "???!", "nobody will ever answer"},
		{"U|U|U", "?|?|?!", "nor on any connection"},
		{"UUUU", "???!?", "that is said once"},
		{"UU-U", "??S?", "three in a row"},
		{"UU.U", "??.?!", "a question that was not put breaks no row"},
		{"UUaUUU", "??TSSS", "it has answered"},
		{"a|UUU", "T|???", "it has answered on another connection"},
	} {
		var k checkups
		var answered bool
		var got strings.Builder
		for _, c := range test.row {
			if c == '|' {
				answered = false
				got.WriteByte('|')
				continue
			}
			v, off := k.judge(replies[c], &answered, c == 'u')
			got.WriteString(letters[v])
			if off {
				got.WriteByte('!')
			}
		}
		if want := strings.ReplaceAll(test.want, ".", "?"); got.String() != want {
			t.Errorf("%s: %s, want %s: %s", test.row, got.String(), want, test.why)
		}
		if k.off != strings.Contains(test.want, "!") {
			t.Errorf("%s: off is %v", test.row, k.off)
		}
	}
}
