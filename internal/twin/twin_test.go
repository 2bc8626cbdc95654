package twin

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// perGame is half of how many operations a game may have, beside its end.
const perGame = 60

// TestModel plays random games on the pure cores: 20,000 operations, or as many as
// the environment says in TWIN_STEPS. What fails is written, made short, to
// testdata/seeds/new.txt.
func TestModel(t *testing.T) {
	steps := 20000
	if s := os.Getenv("TWIN_STEPS"); s != "" {
		steps, _ = strconv.Atoi(s)
	}
	setFlag(t, "rapid.checks", strconv.Itoa(2*steps/perGame)) // rapid likes them short
	seed := os.Getenv("TWIN_SEED")
	if seed == "" && os.Getenv("TWIN_STEPS") == "" {
		seed = "1" // the same games every time
	}
	if seed != "" {
		setFlag(t, "rapid.seed", seed)
	}
	setFlag(t, "rapid.nofailfile", "true")
	setFlag(t, "rapid.shrinktime", "0s") // shorten does it
	var played, games int
	began := time.Now()
	defer func() {
		t.Logf("%d operations in %d games, %.0f a second", played, games, float64(played)/time.Since(began).Seconds())
	}()
	var failed *Script
	defer func() {
		if failed != nil {
			report(t, *failed)
		}
	}()
	rapid.Check(t, func(rt *rapid.T) {
		s := draw(rt)
		if failed != nil {
			rt.Fatal("see below")
		}
		played += len(s.Ops)
		games++
		if v := playPure(s, nil); len(v) > 0 {
			failed = &s
			rt.Fatal("see below")
		}
	})
}

func setFlag(t *testing.T, name, value string) {
	was := flag.Lookup(name).Value.String()
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set(name, was) })
}

// playPure plays a script on the pure cores.
func playPure(s Script, trace func(string)) (violations []string) {
	g := newGame(s.Settings, trace)
	if trace == nil {
		defer func() {
			if p := recover(); p != nil {
				violations = []string{fmt.Sprintf("panic: %v", p)}
			}
		}()
	}
	return g.Play(newPureRelay(g, s.Settings), s.Ops)
}

// report writes a failing script, made short, with what happens in it.
func report(t *testing.T, s Script) {
	if os.Getenv("TWIN_KEEP") == "no" { // a seeded bug (internal/mutants): what it breaks is all that matters
		t.Errorf("violation: %s", strings.Join(playPure(s, nil), "; "))
		return
	}
	s = shorten(s, func(s Script) []string { return playPure(s, nil) })
	var trace strings.Builder
	violations := playPure(s, func(line string) { fmt.Fprintln(&trace, line) })
	name := filepath.Join("testdata", "seeds", "new.txt")
	text := "# " + strings.Join(violations, "\n# ") + "\n" + s.String()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Error(err)
	}
	t.Errorf("%s\n\nthe script, which is in %s too:\n%s\nwhat happened:\n%s", strings.Join(violations, "\n"), name, s, &trace)
}

// shorten leaves out operations, and names of operations, for as long as the same
// rule is broken.
func shorten(s Script, play func(Script) []string) Script {
	rule := func(v []string) string {
		if len(v) == 0 {
			return ""
		}
		id, _, _ := strings.Cut(v[0], ":")
		return id
	}
	want := rule(play(s))
	fails := func(ops []Op) bool { return rule(play(Script{s.Settings, ops})) == want }
	for n := len(s.Ops); n > 0; n /= 2 {
		for i := len(s.Ops) - n; i >= 0; i -= n {
			if try := slices.Delete(slices.Clone(s.Ops), i, min(i+n, len(s.Ops))); fails(try) {
				s.Ops = try
				i = min(i, len(s.Ops))
			}
		}
	}
	for i := len(s.Ops) - 1; i >= 0; i-- {
		if try := slices.Delete(slices.Clone(s.Ops), i, i+1); fails(try) {
			s.Ops = try
		}
	}
	for i := range s.Ops {
		for _, list := range []func(*Op) *[]string{func(o *Op) *[]string { return &o.Add }, func(o *Op) *[]string { return &o.Drop }} {
			for j := len(*list(&s.Ops[i])) - 1; j >= 0; j-- {
				try := slices.Clone(s.Ops)
				l := list(&try[i])
				*l = slices.Delete(slices.Clone(*l), j, j+1)
				if fails(try) {
					s.Ops = try
				}
			}
		}
	}
	return s
}

// TestSeeds plays again what has once failed.
func TestSeeds(t *testing.T) {
	files, err := filepath.Glob("testdata/seeds/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Parse(string(text))
			if err != nil {
				t.Fatal(err)
			}
			if violations := playPure(s, nil); len(violations) > 0 {
				playPure(s, func(line string) { t.Log(line) })
				t.Error(strings.Join(violations, "\n"))
			}
		})
	}
}

// --- random scripts ---

// draw is a random game. What an operation is does not depend on those before
// it.
func draw(t *rapid.T) Script {
	s := Script{Settings: Settings{
		Settle:   rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond}).Draw(t, "settle"),
		Linger:   rapid.SampledFrom([]time.Duration{30 * time.Second, 0}).Draw(t, "linger"),
		Coalesce: rapid.SampledFrom([]time.Duration{0, 10 * time.Millisecond}).Draw(t, "coalesce"),
	}}
	s.Settings.Snapshot = rapid.Bool().Draw(t, "snapshot")
	few := rapid.SampledFrom([][]kind{kinds, kinds[:1], kinds[:2], kinds[3:], kinds[1:2]}).Draw(t, "kinds")
	world := cast{kinds: few, aliases: rapid.Bool().Draw(t, "aliases"), deep: os.Getenv("TWIN_DEEP") != ""}
	n := rapid.IntRange(1, 2*perGame).Draw(t, "length")
	for i := range n {
		// rapid prefers small numbers, which here would only mean the same few
		// operations again and again.
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "op"), uint64(i)))
		s.Ops = append(s.Ops, world.op(r))
	}
	return s
}

// cast is what a game is about.
type cast struct {
	kinds []kind
	// aliases: resources have some. Then nobody asks for the wildcard, save where a
	// type's first request is one, unless the game is deep (docs/testing.md).
	aliases, deep bool
}

// weights are how often each verb is played.
var weights = weighted(map[string]int{
	"set": 12, "remove": 5, "version": 2, "wipe": 1,
	"habit": 3, "push": 20, "again": 2, "bad": 1, "error": 1, "extra": 1, "end": 2, "down": 1, "up": 2,
	"open": 3, "sub": 14, "ack": 8, "nack": 2, "acks": 6, "close": 2, "reconnect": 4, "deaf": 2,
	"wait": 6, "save": 1, "restart": 1, "hold": 2, "go": 4,
})

func weighted(m map[string]int) (all []string) {
	for verb := range verbs {
		for range m[verb] {
			all = append(all, verb)
		}
	}
	slices.Sort(all)
	return all
}

var waits = []int{5, 50, 100, 1000, 4000, 11000, 16000, 31000}

func (c cast) op(r *rand.Rand) Op {
	kinds := c.kinds
	o := Op{Verb: weights[r.IntN(len(weights))]}
	switch o.Verb {
	case "set", "remove", "version", "wipe", "push", "again", "bad", "error", "extra", "sub", "ack", "nack":
		o.Kind = kinds[r.IntN(len(kinds))].name
	}
	switch o.Verb {
	case "set":
		o.Add = []string{poolNames[r.IntN(len(poolNames)-len(poolAliases))]}
		for _, alias := range poolAliases {
			if !c.aliases {
				break
			}
			if o.Kind == "FOO" && r.IntN(3) == 0 || r.IntN(12) == 0 {
				o.Add = append(o.Add, alias)
			}
		}
	case "remove", "version", "error", "extra":
		o.Add = someNames(r, 3)
	case "push", "bad":
		o.Who = r.IntN(3)
		if r.IntN(3) == 0 {
			o.N = r.IntN(64)
		}
	case "again":
		o.Who = r.IntN(3)
	case "end":
		o.Who, o.N = r.IntN(3), r.IntN(3)
	case "habit":
		o.N = r.IntN(allHabits + 1)
	case "open":
		o.Who, o.N = r.IntN(4), r.IntN(4)
	case "sub":
		o.Who, o.Add, o.Drop = r.IntN(4), someNames(r, 3), someNames(r, 4)
		switch r.IntN(6) {
		case 0:
			if !c.aliases || c.deep {
				o.Add = append(o.Add, wildcard)
			}
		case 1:
			o.Drop = append(o.Drop, wildcard)
		case 2:
			o.Add = nil
		}
	case "ack", "nack", "acks", "close":
		o.Who = r.IntN(4)
	case "reconnect":
		o.Who, o.N = r.IntN(4), r.IntN(4)
	case "deaf":
		o.Who, o.N = r.IntN(4), r.IntN(2)
	case "wait":
		o.N = waits[r.IntN(len(waits))]
	case "restart":
		o.N = r.IntN(2)
	case "go":
		o.N = r.IntN(8)
	}
	return o
}

// someNames are about one in n of them.
func someNames(r *rand.Rand, n int) (names []string) {
	for _, name := range poolNames {
		if r.IntN(n) == 0 {
			names = append(names, name)
		}
	}
	return names
}
