package hop

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestVia: what one relay says of a way, the next one reads, however it is spread over headers.
func TestVia(t *testing.T) {
	for _, via := range [][]string{nil, {"a"}, {"a", "b/1"}} {
		if got := Via([]string{Value(via)}); !slices.Equal(got, via) {
			t.Errorf("%q was sent, and %q came", via, got)
		}
	}
	if got := Via([]string{" a ,,", "b"}); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("spread over two headers it is %q", got)
	}
}

// TestLoop: a relay refuses what has come through it before, and what has come too far (NODE-11).
func TestLoop(t *testing.T) {
	far := strings.Split(strings.Repeat("r,", most)+"r", ",")
	for _, c := range []struct {
		via  []string
		want string
	}{
		{nil, ""},
		{[]string{"a", "b"}, ""},
		{far[1:], ""},
		{[]string{"a", "me", "b"}, `"me" before (by way of a, me, b): break the loop`},
		{far, "more than 8"},
	} {
		if got := Loop(c.via, "me"); got == "" != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%q: %q, want %q", c.via, got, c.want)
		}
	}
	if a, b := NewID("x"), NewID("x"); a == b || !strings.HasPrefix(a, "x/") {
		t.Errorf("two relays called x are %q and %q", a, b)
	}
}

// TestIdentifier: a relay is known by what it calls itself, whatever stands above it (DOWN-DELTA-19).
func TestIdentifier(t *testing.T) {
	for name, want := range map[string]bool{Identifier("a", ""): true, Identifier("a", "istiod"): true, "istiod": false, "not-xds-relay/a": false, "": false} {
		if IsRelay(name) != want {
			t.Errorf("%q is a relay: %v", name, !want)
		}
	}
	if got := Identifier("a", "istiod"); got != "xds-relay/a [istiod]" {
		t.Errorf("it is called %q", got)
	}
}

// TestPart: the last part of an answer is told from the others (RECON-16).
func TestPart(t *testing.T) {
	for follow, last := range map[int]bool{0: true, 1: false, 10: false} {
		if nonce := Part("CDS.7", follow); Last(nonce) != last {
			t.Errorf("%s is the last: %v", nonce, !last)
		}
	}
}

func TestWays(t *testing.T) {
	w := make(Ways)
	tell := func(want ...string) {
		t.Helper()
		if got := w.Longest(); !slices.Equal(got, want) {
			t.Errorf("the longest of %v is %v, want %v", w, got, want)
		}
	}
	tell()
	w.Join(nil)
	w.Join([]string{"b"})
	w.Join([]string{"a"})
	w.Join([]string{"b"})
	tell("a")
	w.Join([]string{"z", "y"})
	tell("z", "y")
	w.Leave([]string{"z", "y"})
	w.Leave([]string{"a"})
	w.Leave([]string{"b"})
	tell("b")
	w.Leave(nil)
	w.Leave([]string{"b"})
	tell()
	if len(w) > 0 {
		t.Errorf("%v is left", w)
	}
}
