package twin

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// fixed is the seed of the games that every test run plays.
const fixed = 2

// TestModel plays random games on the pure cores: 20,000 operations, the same ones
// every time, or as many others as the environment says (run).
func TestModel(t *testing.T) { newRun(20000, fixed, draw).playAll(t) }

// TestSwarm plays games that are each about a few things.
func TestSwarm(t *testing.T) { newRun(10000, fixed, drawSwarm).playAll(t) }

// TestSotW plays games with a control plane that speaks SotW only, of which the relay knows or which it finds out. What
// kinds of server there are is about Delta, and about one server.
func TestSotW(t *testing.T) {
	newRun(5000, fixed, func(r *rand.Rand) Script {
		s := draw(r)
		s.Settings.SotW, s.Settings.Server, s.Settings.Second = oneOf(r, "sotw", "auto"), "", ""
		if s.Settings.SotW == "auto" { // that there is no Delta must be heard at once
			s.Ops = slices.DeleteFunc(s.Ops, func(o Op) bool { return o.Verb == "hang" || o.Verb == "wake" })
		}
		return s
	}).playAll(t)
}

// run is many games of one seed. Game n of a seed is always the same. What fails is
// written, made short, to testdata/seeds/new.txt.
type run struct {
	draw   func(*rand.Rand) Script
	steps  int
	seed   uint64
	game   uint64 // to play alone, if one
	one    bool
	many   int // violations after which it ends
	shards int // that play at the same time

	mu                    sync.Mutex
	played, games, failed int
	excused               map[leniency]int
}

// newRun is a run of that many operations from a seed, unless the environment says
// otherwise: TWIN_STEPS plays as many others, on all cores; TWIN_SEED is a seed, or
// seed/n for one game; TWIN_MANY goes on until that many games have failed.
func newRun(steps int, seed uint64, draw func(*rand.Rand) Script) *run {
	r := &run{draw: draw, steps: number("TWIN_STEPS", steps), seed: seed, many: number("TWIN_MANY", 1), shards: 1, excused: map[leniency]int{}}
	if os.Getenv("TWIN_STEPS") != "" {
		r.seed, r.shards = rand.Uint64N(1e9), runtime.GOMAXPROCS(0)
	}
	if s := os.Getenv("TWIN_SEED"); s != "" {
		seed, game, one := strings.Cut(s, "/")
		r.seed, _ = strconv.ParseUint(seed, 10, 64)
		r.game, _ = strconv.ParseUint(game, 10, 64)
		r.one = one
	}
	return r
}

// number is what the environment says, or else otherwise.
func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

func (r *run) playAll(t *testing.T) {
	if r.one {
		r.play(t, r.game)
		return
	}
	began := time.Now()
	t.Cleanup(func() {
		speed := float64(r.played) / time.Since(began).Seconds()
		t.Logf("%d steps in %d games of seed %d, %.0f steps a second, %d violations", r.played, r.games, r.seed, speed, r.failed)
		for _, why := range slices.Sorted(maps.Keys(r.excused)) {
			t.Logf("lenient, met %d times: %s", r.excused[why], why)
		}
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
	return r.played < r.steps && r.failed < r.many
}

// play plays game n.
func (r *run) play(t *testing.T, n uint64) {
	s := r.draw(rand.New(rand.NewPCG(r.seed, n)))
	c := playPure(s, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.played += len(s.Ops)
	r.games++
	for why, n := range c.excused {
		r.excused[why] += n
	}
	if len(c.Violations) > 0 {
		r.failed++
		t.Logf("game TWIN_SEED=%d/%d", r.seed, n)
		report(t, s, c.Violations)
	}
}

// playPure plays a script on the pure cores, and returns its judge.
func playPure(s Script, trace func(string)) (judge *Checker) {
	g := newGame(s.Settings, trace)
	judge = g.checker
	defer func() {
		if p := recover(); p != nil {
			g.checker.fail("panic", "%v", p)
			g.log("%s", debug.Stack())
		}
	}()
	g.Play(newPureRelay(g, s.Settings), s.Ops)
	return judge
}

// report writes a failing script, made short, with what happens in it.
func report(t *testing.T, s Script, violations []string) {
	t.Helper()
	if os.Getenv("TWIN_KEEP") == "no" { // a seeded bug (internal/test/mutants): what it breaks is all that matters
		t.Errorf("violation: %s", strings.Join(violations, "; "))
		return
	}
	s = shorten(s, violations, func(s Script) []string { return playPure(s, nil).Violations })
	var trace strings.Builder
	if again := playPure(s, func(line string) { fmt.Fprintln(&trace, line) }); len(again.Violations) > 0 {
		violations = again.Violations
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
	for i, whole := range s.Ops {
		for _, name := range slices.Concat(whole.Add, whole.Drop) {
			try := slices.Clone(s.Ops)
			o := &try[i]
			if o.Verb == "set" && o.Add[0] == name {
				continue // else an alias would become a name
			}
			o.Add, o.Drop = beyond(o.Add, []string{name}), beyond(o.Drop, []string{name})
			if fails(try) {
				s.Ops = try
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
			if violations := playPure(s, nil).Violations; len(violations) > 0 {
				playPure(s, func(line string) { t.Log(line) })
				t.Error(strings.Join(violations, "\n"))
			}
		})
	}
}
