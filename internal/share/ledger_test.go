package share

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// ask takes one of a total of 4 for a holder, and names what is displaced.
func ask(l *Ledger[string], holder string, exempt bool, name string) (e *Entry[string], got bool, displaced []string) {
	e = l.Enter(holder, exempt, name)
	n, displaced := l.Take(e, 1, 4, nil)
	return e, n == 1, displaced
}

// TestNewcomersGetAShare: a full total makes room for whoever would have less than the largest holder, and for
// nobody else.
func TestNewcomersGetAShare(t *testing.T) {
	var l Ledger[string]
	for _, step := range []struct {
		holder, name string
		exempt       bool
		got          bool
		displaced    []string
	}{
		{holder: "a", name: "a1", got: true},
		{holder: "a", name: "a2", got: true},
		{holder: "a", name: "a3", got: true},
		{holder: "a", name: "a4", got: true}, // a total may be used to its end by anybody
		{holder: "a", name: "a5"},
		{holder: "b", name: "b1", got: true, displaced: []string{"a4"}},
		{holder: "a", name: "a4 again"},
		{holder: "b", name: "b2", got: true, displaced: []string{"a3"}},
		{holder: "b", name: "b3"}, // it would have more than a
		{holder: "a", name: "a3 again"},
		{holder: "c", name: "c1", got: true, displaced: []string{"?"}},
		{holder: "d", name: "d1", got: true, displaced: []string{"?"}},
		{holder: "e", name: "e1"}, // who has one keeps it
		{holder: "local", exempt: true, name: "x1"},
	} {
		_, got, displaced := ask(&l, step.holder, step.exempt, step.name)
		same := slices.Equal(displaced, step.displaced) || len(displaced) == 1 && slices.Equal(step.displaced, []string{"?"})
		if got != step.got || !same {
			t.Errorf("%s: got %v, displaced %q", step.name, got, displaced)
		}
	}
	if l.Used() != 4 || l.Holders() != 4 {
		t.Errorf("%d are used by %d", l.Used(), l.Holders())
	}
}

// TestTheExemptStay: they are not displaced, and room is made for them as for somebody who has nothing.
func TestTheExemptStay(t *testing.T) {
	var l Ledger[string]
	for _, name := range []string{"x1", "x2"} {
		ask(&l, "x", true, name)
	}
	ask(&l, "a", false, "a1")
	ask(&l, "a", false, "a2")
	if _, got, displaced := ask(&l, "b", false, "b1"); !got || !slices.Equal(displaced, []string{"a2"}) {
		t.Errorf("got %v, displaced %q", got, displaced)
	}
	if _, got, _ := ask(&l, "x", true, "x3"); got {
		t.Error("the last one of a holder went")
	}
}

// TestMoveAndRenounce: an entry may change hands, and one that nobody would miss goes first.
func TestMoveAndRenounce(t *testing.T) {
	var l Ledger[string]
	a1, _, _ := ask(&l, "a", false, "a1")
	a2, _, _ := ask(&l, "a", false, "a2")
	ask(&l, "a", false, "a3")
	a4, _, _ := ask(&l, "a", false, "a4")
	l.Renounce(a1, true)
	l.Renounce(a1, false) // it is the newest now
	l.Renounce(a1, true)
	l.Renounce(a2, true)
	l.Renounce(a1, false)
	if _, _, displaced := ask(&l, "b", false, "b1"); !slices.Equal(displaced, []string{"a2"}) {
		t.Errorf("displaced %q", displaced)
	}
	if old := l.Oldest(a4); old.Value != "a3" || l.Oldest(old) != a4 {
		t.Errorf("the oldest is %v", old)
	}
	l.Move(a4, "x", true)
	if l.Oldest(a4) != nil || l.Used() != 4 || l.Holders() != 2 {
		t.Errorf("moved: %d used, %d holders", l.Used(), l.Holders())
	}
	if n, _ := l.Take(a2, 1, 0, nil); n != 0 {
		t.Error("what was displaced gets something")
	}
	keep := func(string) bool { return false }
	if n, _ := l.Take(l.Enter("c", false, "c1"), 1, 4, keep); n != 0 {
		t.Error("what may not be displaced was")
	}
}

// TestAmounts: who takes many at once gets as many as leave it no more than those keep who lose something.
func TestAmounts(t *testing.T) {
	var l Ledger[string]
	for _, name := range []string{"a1", "a2", "a3"} {
		l.Take(l.Enter("a", false, name), 3, 10, nil)
	}
	b := l.Enter("b", false, "b")
	if n, displaced := l.Take(b, 20, 10, nil); n != 4 || !slices.Equal(displaced, []string{"a3"}) {
		t.Errorf("b got %d, displaced %q", n, displaced)
	}
	if n, displaced := l.Take(l.Enter("a", false, "a3"), 3, 10, nil); n != 0 || displaced != nil {
		t.Errorf("a got %d, displaced %q", n, displaced)
	}
}

// TestNobodyLosesItsOnlyEntry: two who each want most of the total do not displace each other, and who has more in
// a single entry does not protect who has many.
func TestNobodyLosesItsOnlyEntry(t *testing.T) {
	var l Ledger[string]
	l.Take(l.Enter("one", false, "one"), 60, 100, nil)
	for range 4 {
		l.Take(l.Enter("many", false, "many"), 10, 100, nil)
	}
	b := l.Enter("b", false, "b")
	if n, displaced := l.Take(b, 60, 100, nil); n != 20 || len(displaced) != 2 || slices.Contains(displaced, "one") {
		t.Errorf("b got %d, displaced %q", n, displaced)
	}
	if n, displaced := l.Take(l.Enter("c", false, "c"), 60, 100, nil); n != 10 || !slices.Equal(displaced, []string{"many"}) {
		t.Errorf("c got %d, displaced %q", n, displaced)
	}
	if n, displaced := l.Take(l.Enter("d", false, "d"), 60, 100, nil); n != 0 || displaced != nil {
		t.Errorf("d got %d, displaced %q", n, displaced)
	}
}

// TestAllOrNothing: who would not get all displaces nobody.
func TestAllOrNothing(t *testing.T) {
	var l Ledger[string]
	for _, name := range []string{"a1", "a2", "a3", "a4", "a5"} {
		l.Take(l.Enter("a", false, name), 2, 10, nil)
	}
	b := l.Enter("b", false, "b")
	if ok, displaced := l.TakeAll(b, 5, 10); ok || displaced != nil || l.Used() != 10 {
		t.Errorf("5 of b: %v, displaced %q, %d used", ok, displaced, l.Used())
	}
	if broken := l.Check(); broken != nil {
		t.Errorf("does not hold: %q", broken)
	}
	if ok, displaced := l.TakeAll(b, 4, 10); !ok || !slices.Equal(displaced, []string{"a5", "a4"}) {
		t.Errorf("4 of b: %v, displaced %q", ok, displaced)
	}
}

// TestRandomSteps: the invariants hold, the total is never exceeded, and who loses something keeps at least what the
// other one then has.
func TestRandomSteps(t *testing.T) {
	const most = 40
	random := rand.New(rand.NewPCG(1, 2))
	var l Ledger[*int]
	var entries []*Entry[*int]
	has := func(name string) (n int) {
		if h := l.holders[name]; h != nil {
			n = h.has
		}
		return n
	}
	for step := range 20_000 {
		if len(entries) == 0 || random.IntN(3) == 0 {
			name := strconv.Itoa(random.IntN(6))
			entries = append(entries, l.Enter(name, name == "0", new(int)))
		}
		at := random.IntN(len(entries))
		e := entries[at]
		switch random.IntN(8) {
		case 0:
			l.Leave(e)
			entries = slices.Delete(entries, at, at+1)
		case 1:
			l.Give(e, random.IntN(4))
		case 2:
			l.Renounce(e, random.IntN(2) == 0)
		case 3:
			name := strconv.Itoa(random.IntN(6))
			l.Move(e, name, name == "0")
		default:
			n := 1 + random.IntN(5)
			got, displaced := 0, []*int(nil)
			if all := random.IntN(3) == 0; !all {
				got, displaced = l.Take(e, n, most, nil)
			} else if ok, out := l.TakeAll(e, n, most); ok {
				got, displaced = n, out
			} else {
				n = 0
			}
			now := has(e.name)
			if e.exempt {
				now = got
			}
			for _, d := range displaced {
				i := slices.IndexFunc(entries, func(e *Entry[*int]) bool { return e.Value == d })
				if of := entries[i].name; entries[i].exempt || has(of) < now {
					t.Fatalf("step %d: %q with %d displaces %q with %d", step, e.name, now, of, has(of))
				}
			}
			if got < n && !e.gone && len(displaced) == 0 && l.used < most {
				t.Fatalf("step %d: got %d of %d, and %d are used", step, got, n, l.used)
			}
		}
		if broken := l.Check(); len(broken) > 0 || l.used > most {
			t.Fatalf("step %d: %d used, %q", step, l.used, broken)
		}
	}
}

func BenchmarkTakeFromTheLargest(b *testing.B) {
	for _, holders := range []int{100, 100_000} {
		b.Run(strconv.Itoa(holders), func(b *testing.B) {
			var l Ledger[int]
			for i := range holders {
				l.Take(l.Enter(strconv.Itoa(i), false, i), 1, 0, nil)
			}
			large := l.Enter("large", false, 0)
			for b.Loop() {
				l.Take(large, 2, 0, nil)
				e := l.Enter("new", false, 0)
				l.Take(e, 1, holders+2, nil)
				l.Leave(e)
				large = l.Enter("large", false, 0)
			}
		})
	}
}
