package health

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Part is something that has to keep moving.
type Part struct {
	Name string
	// Ask is called once a round, always by the same goroutine. It takes the locks that
	// the part's work takes, so that it does not return while one of them is stuck. It
	// returns what has not moved since the last round, or nothing.
	Ask func() (still string)
}

// Options of a Watchdog. All are needed.
type Options struct {
	// Every is the time between two rounds.
	Every time.Duration
	// Rounds is how many a part may miss in a row before it counts as stuck. Rounds are
	// counted, and not time, because a process that was stopped, or a machine that
	// slept, has missed none.
	Rounds int
	Parts  []Part
	Log    *slog.Logger
}

// Watchdog asks its parts for a sign of life, one after the other, in rounds. Its
// methods may be called from any goroutine, and never wait for a part.
type Watchdog struct {
	options Options
	begin   chan struct{} // one slot: a round is to begin

	mu     sync.Mutex
	asking int // the part that is being asked; none: -1
	parts  []sign
}

// sign is what a part has shown.
type sign struct {
	missed int    // rounds in a row
	still  string // what stands still, as the part reports it
}

// New returns a Watchdog that asks nobody until Run.
func New(o Options) *Watchdog {
	return &Watchdog{options: o, begin: make(chan struct{}, 1), asking: -1, parts: make([]sign, len(o.Parts))}
}

// Run asks until ctx ends. If a part is stuck just then, it waits for it.
func (w *Watchdog) Run(ctx context.Context) {
	var asker sync.WaitGroup
	asker.Go(w.ask)
	defer asker.Wait()
	defer close(w.begin)
	tick := time.NewTicker(w.options.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.round()
		}
	}
}

// ask asks the parts, a round for each word that one is to begin.
func (w *Watchdog) ask() {
	for range w.begin {
		for i, p := range w.options.Parts {
			w.note(func() { w.asking = i })
			still := p.Ask()
			w.note(func() {
				if still == "" {
					w.parts[i] = sign{}
				} else {
					w.parts[i] = sign{w.parts[i].missed + 1, still}
				}
			})
		}
		w.note(func() { w.asking = -1 })
	}
}

// round begins one, unless a part has not answered in the last.
func (w *Watchdog) round() {
	w.note(func() {
		if w.asking >= 0 {
			w.parts[w.asking].missed++
			return
		}
		w.asking = 0 // from now on, and not only from when the asker gets to run
		w.begin <- struct{}{}
	})
}

// note makes a change, and logs what it changes about a part.
func (w *Watchdog) note(change func()) {
	w.mu.Lock()
	before := w.checks()
	change()
	after := w.checks()
	w.mu.Unlock()
	for i, c := range after {
		switch {
		case before[i].OK && !c.OK:
			w.options.Log.Error("the relay is stuck; /livez says so, and whoever asks it restarts the relay", "part", c.Name, "err", c.Why)
		case !before[i].OK && c.OK:
			w.options.Log.Warn("the relay was stuck, and goes on", "part", c.Name)
		}
	}
}

// Checks says of each part whether it moves.
func (w *Watchdog) Checks() []Check {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checks()
}

func (w *Watchdog) checks() []Check {
	checks := make([]Check, len(w.parts))
	for i, s := range w.parts {
		checks[i] = Check{Name: w.options.Parts[i].Name, OK: s.missed < w.options.Rounds}
		if !checks[i].OK {
			checks[i].Why = fmt.Sprintf("no sign of life for %v", time.Duration(s.missed)*w.options.Every)
			if s.still != "" {
				checks[i].Why += ": " + s.still
			}
		}
	}
	return checks
}
