package twin

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// perGame is how many operations a game has on average, beside its end.
const perGame = 60

// fixed is the seed of the games that every test run plays: with it they catch all
// mutants (internal/mutants).
const fixed = 2

// TestModel plays random games on the pure cores: 20,000 operations, the same ones
// every time, or as many others as the environment says (run).
func TestModel(t *testing.T) { newRun(20000, fixed, draw).playAll(t) }

// run is many games of one seed. Game n of a seed is always the same. What fails is
// written, made short, to testdata/seeds/new.txt.
type run struct {
	draw  func(*rand.Rand) Script
	steps int64
	seed  uint64
	game  uint64 // to play alone, if one
	one   bool
	many  int // violations after which it ends
	// shards play at the same time.
	shards        int
	played, games atomic.Int64

	mu     sync.Mutex
	failed int
}

// newRun is a run of that many operations from a seed, unless the environment says
// otherwise: TWIN_STEPS plays as many others, on all cores; TWIN_SEED is a seed, or
// seed/n for one game; TWIN_MANY goes on until that many games have failed.
func newRun(steps int64, seed uint64, draw func(*rand.Rand) Script) *run {
	r := &run{draw: draw, steps: steps, seed: seed, many: 1, shards: 1}
	if s := os.Getenv("TWIN_STEPS"); s != "" {
		r.steps, _ = strconv.ParseInt(s, 10, 64)
		r.seed = rand.Uint64N(1e9)
		r.shards = runtime.GOMAXPROCS(0)
	}
	if s := os.Getenv("TWIN_MANY"); s != "" {
		r.many, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("TWIN_SEED"); s != "" {
		seed, game, one := strings.Cut(s, "/")
		r.seed, _ = strconv.ParseUint(seed, 10, 64)
		r.game, _ = strconv.ParseUint(game, 10, 64)
		r.one = one
	}
	return r
}

func (r *run) playAll(t *testing.T) {
	if r.one {
		r.play(t, r.game)
		return
	}
	began := time.Now()
	t.Cleanup(func() {
		t.Logf("%d steps in %d games of seed %d, %.0f steps a second, %d violations", r.played.Load(), r.games.Load(), r.seed,
			float64(r.played.Load())/time.Since(began).Seconds(), r.failed)
	})
	for shard := range r.shards {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for n := uint64(shard); r.goesOn(); n += uint64(r.shards) {
				r.play(t, n)
			}
		})
	}
}

func (r *run) goesOn() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.played.Load() < r.steps && r.failed < r.many
}

// play plays game n.
func (r *run) play(t *testing.T, n uint64) {
	s := r.draw(rand.New(rand.NewPCG(r.seed, n)))
	r.played.Add(int64(len(s.Ops)))
	r.games.Add(1)
	violations := playPure(s, nil)
	if len(violations) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed++
	t.Logf("game TWIN_SEED=%d/%d", r.seed, n)
	report(t, s, violations)
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
func report(t *testing.T, s Script, violations []string) {
	t.Helper()
	if os.Getenv("TWIN_KEEP") == "no" { // a seeded bug (internal/mutants): what it breaks is all that matters
		t.Errorf("violation: %s", strings.Join(violations, "; "))
		return
	}
	s = shorten(s, violations, func(s Script) []string { return playPure(s, nil) })
	var trace strings.Builder
	if again := playPure(s, func(line string) { fmt.Fprintln(&trace, line) }); len(again) > 0 {
		violations = again
	}
	name := filepath.Join("testdata", "seeds", "new.txt")
	text := "# " + strings.Join(violations, "\n# ") + "\n" + s.String()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Error(err)
	}
	t.Errorf("%s\n\nthe script, which is in %s too:\n%s\nwhat happened:\n%s", strings.Join(violations, "\n"), name, s, &trace)
}

// shorten leaves out operations, and names of operations, for as long as the same
// rule is broken.
func shorten(s Script, violations []string, play func(Script) []string) Script {
	rule := func(v []string) string {
		if len(v) == 0 {
			return ""
		}
		id, _, _ := strings.Cut(v[0], ":")
		return id
	}
	want := rule(violations)
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
				if s.Ops[i].Verb == "set" && j == 0 {
					continue // else an alias would become a name
				}
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

// tight is room for the node, a type and a few names: what is asked for goes over several
// requests (UP-17).
const tight = 95

// draw is a random game. What an operation is does not depend on those before
// it.
func draw(r *rand.Rand) Script {
	s := Script{Settings: Settings{
		Settle:   oneOf(r, 0, 100*time.Millisecond),
		Linger:   oneOf(r, 30*time.Second, 0),
		Coalesce: oneOf(r, 0, 10*time.Millisecond),
		Snapshot: oneOf(r, true, false),
		Request:  oneOf(r, 0, tight),
	}}
	few := oneOf(r, kinds, kinds[:1], kinds[:2], kinds[3:], kinds[1:2])
	world := cast{kinds: few, aliases: oneOf(r, true, false), deep: os.Getenv("TWIN_DEEP") != ""}
	for range 1 + r.IntN(2*perGame) {
		s.Ops = append(s.Ops, world.op(r))
	}
	return s
}

func oneOf[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

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
