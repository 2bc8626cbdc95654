package hop

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

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

// TestLoop: a relay refuses what has come through it before, whoever says so, and ways that are too long to go
// further up (NODE-11).
func TestLoop(t *testing.T) {
	far := strings.Split(strings.Repeat("r,", most)+"r", ",")
	for _, c := range []struct {
		via, up []string
		want    string
	}{
		{nil, nil, ""},
		{[]string{"a", "b"}, []string{"a", "b"}, ""},
		{far[1:], far[1:], ""},
		{far, nil, ""},
		{[]string{"a", "me", "b"}, nil, `"me" before (by way of a, me, b): break the loop`},
		{far, far, "more than 8"},
		{[]string{strings.Repeat("r", longest)}, []string{strings.Repeat("r", longest)}, ""},
		{nil, []string{"a", strings.Repeat("r", longest+1)}, "an id of 65 bytes, more than 64"},
	} {
		if got := Loop(c.via, c.up, "me"); got == "" != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%q: %q, want %q", c.via, got, c.want)
		}
	}
	if a, b := NewID("x"), NewID("x"); a == b || !strings.HasPrefix(a, "x/") {
		t.Errorf("two relays called x are %q and %q", a, b)
	}
	if id := NewID(strings.Repeat("ü", 100)); len(id) > longest || !utf8.ValidString(id) {
		t.Errorf("a long name makes the id %q of %d bytes", id, len(id))
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
