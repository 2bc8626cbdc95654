package twin

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// What the relay does not keep yet. Nothing else that the Checker sees is excused.
//
// A game in which an exemption is met ends there, and counts as played: what comes of a
// fault is not judged. A run prints how often each was met. Whoever mends a rule deletes
// its entry, here as in the transcripts (# open).

// exemption is one open rule.
type exemption struct {
	rule string // of docs/protocol.md
	what string // goes wrong, in a sentence
	// covers tells whether what the Checker says is this fault: broken is the id it
	// begins with.
	covers func(c *Checker, broken string) bool
}

// open are rules that later issues mend.
var open = []exemption{}

// unmended are those that are being mended now, each with the habit of the control plane
// that shows it. When what mends one is merged its entry is deleted; what the games then
// find is a fault.
var unmended = []exemption{}

// excused finds the exemption that covers a violation.
func (c *Checker) excused(broken string) *exemption {
	for _, list := range [][]exemption{open, unmended} {
		if i := slices.IndexFunc(list, func(e exemption) bool { return e.covers(c, broken) }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// tally counts how often each exemption was met.
type tally struct {
	mu  sync.Mutex
	met map[string]int // by what
}

func (t *tally) add(c *Checker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.Excused == nil {
		return
	}
	if t.met == nil {
		t.met = map[string]int{}
	}
	t.met[c.Excused.what]++
}

// String lists every exemption, met or not.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for name, list := range map[string][]exemption{"open": open, "not mended yet": unmended} {
		for _, e := range list {
			fmt.Fprintf(&b, "\n%-14s %-10s met in %d games: %s", name, e.rule, t.met[e.what], e.what)
		}
	}
	if b.Len() == 0 {
		return "no rule is open"
	}
	return strings.TrimPrefix(b.String(), "\n")
}
