package logging

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/xds-relay/xds-relay/cache"
)

// TestALineIsBounded: however many names a peer sends, and however long ones, a line has a
// few of them, each cut between characters; no version of a secret is in it.
func TestALineIsBounded(t *testing.T) {
	long := strings.Repeat("x", maxName-1) + "é"
	first := First(append([]string{long}, strings.Split(strings.Repeat("a", 100), "")...))
	if len(first) != MaxNames || len(first[0]) != maxName-1 || !utf8.ValidString(first[0]) {
		t.Errorf("%q", first)
	}
	if v := Version(cache.Secret, "weak"); strings.Contains(v, "weak") {
		t.Errorf("the version of a secret is shown: %s", v)
	}
	if v := Version(cache.Cluster, "1"); v != "1" {
		t.Errorf("the version of a cluster is shown as %s", v)
	}
}
