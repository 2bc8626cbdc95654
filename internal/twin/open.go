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
var open = []exemption{
	{"DOWN-DELTA-14", "a name given up in the request that asks for the wildcard is told to be gone, and again with the next removal",
		func(c *Checker, broken string) bool { return broken == "DOWN-DELTA-14" && c.leaves }},
	{"DOWN-DELTA-14", "a name given up while a denial of it waits for an ACK is told to be gone once more",
		func(c *Checker, broken string) bool { return broken == "DOWN-DELTA-14" && c.redenied }},
	{"DOWN-DELTA-14", "a SotW client that asks for a wildcard and for a name that does not exist is told so, and then that the set is empty",
		func(c *Checker, broken string) bool {
			return broken == "DOWN-DELTA-14" && c.about.sotw && c.about.interest.Wildcard
		}},
	{"WILD-8", "a member that is named and given up in one request is told twice",
		func(c *Checker, broken string) bool { return broken == "G5" && c.leaves }},
	{"WILD-8", "a member that is named is given up in the request that asks for an alias of it, and is told to be gone",
		func(c *Checker, broken string) bool {
			return broken == "G4" && c.leaves && c.about.interest.Wildcard && len(c.about.interest.Names) > 0
		}},
	{"NAME-5", "a resource that a client has by an alias goes, and the client is not told: its name has been given up, by this client or by all, or the alias was answered with an error", breaks("NAME-5")},
	{"ORDER-4", "endpoints that come again after their cluster, and listeners that have waited for clusters, come twice if two names lead to them",
		func(c *Checker, broken string) bool { return broken == "G5" && c.about.twice }},
	{"DOWN-SOTW-7", "a set goes to a SotW client without a name that it may hold as a member of the wildcard that it came with, and asks for by name now",
		func(c *Checker, broken string) bool { return broken == "G4" && c.about.sotw && c.about.asks > 1 }},
	{"RECON-19", "what is on disk replaces what a SotW client came with, once it has changed its names",
		func(c *Checker, broken string) bool { return broken == "RECON-19" && c.about.sotw && c.about.asks > 1 }},
	{"ERR-9", "an error overtakes the copy that came before it and waits for an ACK: the client takes that copy for the end of the error, and is not told of the error again",
		func(c *Checker, broken string) bool { return broken == "ERR-9" && c.overtaken }},
	{"ORDER-2", "a SotW client that turns from the wildcard to a name of it is sent, once more, the cluster that has gone meanwhile",
		func(c *Checker, broken string) bool { return broken == "G1" && c.about.sotw && c.about.asks > 1 }},
	{"TTL-12", "a resource that loses its TTL with its next content, or when its name gets a copy of its own without one, or one that never had a TTL and shares an alias with one that has, is renewed for a millisecond to clients that know TTLs",
		func(c *Checker, broken string) bool { return broken == "TTL-5" && c.flash }},
}

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

// breaks covers any of these violations.
func breaks(ids ...string) func(*Checker, string) bool {
	return func(_ *Checker, broken string) bool { return slices.Contains(ids, broken) }
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
