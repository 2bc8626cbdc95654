package twin

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// playLive plays scripts over gRPC, at the same time on one relay, each by a group of clients
// of its own.
func playLive(t *testing.T, scripts []Script, of company, trace func(string)) (violations []string) {
	dir, settings := "", scripts[0].Settings
	if settings.Snapshot {
		dir = t.TempDir()
	}
	synctest.Test(t, func(*testing.T) {
		var games []*Game
		for i := range scripts {
			tagged := trace
			if trace != nil {
				tagged = func(line string) { trace(fmt.Sprintf("%s [%d] %s", time.Now().Format("04:05.000"), i, line)) }
			}
			g := newGame(settings, tagged)
			g.checker.live = true
			games = append(games, g)
		}
		h := newLiveHost(games, settings, of, dir)
		defer h.shutdown()
		violations = h.play(scripts)
	})
	return violations
}

// TestLive plays the games over gRPC: some, or as many operations as the environment
// says in TWIN_LIVE_STEPS, from the seed in TWIN_SEED. Every other one is played by a few
// groups at once, which clients belong to by their node, or by what their certificates prove.
func TestLive(t *testing.T) {
	steps, seed := 2000, 1
	if s := os.Getenv("TWIN_LIVE_STEPS"); s != "" {
		steps, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("TWIN_SEED"); s != "" {
		seed, _ = strconv.Atoi(s)
	}
	papers, played, began := newPapers(t), 0, time.Now()
	for ; played < steps; seed++ {
		scripts, of := []Script{draw(rand.New(rand.NewPCG(uint64(seed), 0)))}, company{}
		for group := 1; group <= seed%2*(1+seed%4/2); group++ {
			scripts = append(scripts, draw(rand.New(rand.NewPCG(uint64(seed), uint64(group)))))
		}
		if len(scripts) > 1 {
			of = drawCompany(rand.New(rand.NewPCG(uint64(seed), 1000)), papers, scripts)
		}
		for _, s := range scripts {
			played += len(s.Ops)
		}
		violations := playLive(t, scripts, of, nil)
		if len(violations) == 0 {
			continue
		}
		for i := range scripts {
			scripts[i] = shorten(scripts[i], violations, func(s Script) []string {
				tried := slices.Clone(scripts)
				tried[i].Ops = s.Ops
				return playLive(t, tried, of, nil)
			})
		}
		var trace strings.Builder
		violations = playLive(t, scripts, of, func(line string) { fmt.Fprintln(&trace, line) })
		t.Fatalf("seed %d: %s\n\nthe scripts, one a group%v:\n%s\nwhat happened:\n%s", seed, strings.Join(violations, "\n"), of, scripts, &trace)
	}
	t.Logf("%d operations, %.0f a second", played, float64(played)/time.Since(began).Seconds())
}
