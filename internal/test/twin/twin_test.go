package twin

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// perGame is how many operations a game has on average, beside its end.
const perGame = 60

// fixed is the seed of the games that every test run plays: with it they catch all
// mutants (internal/test/mutants).
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

	excuses excuses

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
		t.Log(r.excuses.String())
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
	g, violations := playGame(s, nil)
	r.excuses.add(g.checker)
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
	_, violations = playGame(s, trace)
	return violations
}

func playGame(s Script, trace func(string)) (g *Game, violations []string) {
	g = newGame(s.Settings, trace)
	defer func() {
		if p := recover(); p != nil {
			violations = []string{fmt.Sprintf("panic: %v", p)}
			if trace != nil {
				trace(string(debug.Stack()))
			}
		}
	}()
	return g, g.Play(newPureRelay(g, s.Settings), s.Ops)
}

// report writes a failing script, made short, with what happens in it.
func report(t *testing.T, s Script, violations []string) {
	t.Helper()
	if os.Getenv("TWIN_KEEP") == "no" { // a seeded bug (internal/test/mutants): what it breaks is all that matters
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
			_, violations := playGame(s, nil)
			if len(violations) > 0 {
				playPure(s, func(line string) { t.Log(line) })
				t.Error(strings.Join(violations, "\n"))
			}
		})
	}
}

// excuses counts the leniencies over all games of a run.
type excuses struct {
	mu  sync.Mutex
	met map[leniency]int
}

func (e *excuses) add(c *Checker) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.met == nil {
		e.met = map[leniency]int{}
	}
	for why, n := range c.excused {
		e.met[why] += n
	}
}

// String lists every leniency, met or not.
func (e *excuses) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := make([]string, 0, len(leniencies))
	for _, why := range leniencies {
		rule, what, _ := strings.Cut(string(why), ": ")
		lines = append(lines, fmt.Sprintf("lenient  %-13s met %d times: %s", rule, e.met[why], what))
	}
	return strings.Join(lines, "\n")
}
