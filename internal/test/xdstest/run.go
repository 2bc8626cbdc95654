package xdstest

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var update = flag.Bool("update", false, "rewrite the < lines of transcripts to what the relay says now")

// Player says the lines of a transcript to a relay, and collects what the relay says. It is used by one goroutine, in
// a testing/synctest bubble. An error of any method ends the transcript and fails the test.
type Player interface {
	// Say says one line to the relay and returns when the relay has fallen quiet. The actor "*" says no more than restart.
	Say(actor string, c Command) error
	// Heard is everything the relay has said since the last call; the order counts only within an actor.
	Heard() ([]Event, error)
	// Wait lets time pass, and returns when the relay has fallen quiet.
	Wait(d time.Duration)
	// Close stops the relay and everything else the player has started.
	Close()
}

// NewPlayer starts a relay for one transcript, and returns when it has fallen quiet.
type NewPlayer func(*Transcript) (Player, error)

// RunDir runs every transcript in a directory as a subtest named after its claim.
func RunDir(t *testing.T, dir string, newPlayer NewPlayer) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts in %s (%v)", dir, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { Run(t, file, newPlayer) })
	}
}

// Run plays one transcript in a bubble of its own and compares, or with -update rewrites the file.
func Run(t *testing.T, file string, newPlayer NewPlayer) {
	t.Helper()
	transcript, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	var heard [][]Event
	var complaint string
	strict := !*update || len(transcript.Open) > 0 // what an open one says is what the rule wants, not what the relay says
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		if heard, complaint = play(transcript, newPlayer, strict); complaint != "" {
			t.Error(complaint) // at once: if the relay leaves goroutines behind, the bubble panics next
		}
	})
	if complaint != "" || strict {
		return
	}
	if text := transcript.Rewrite(heard); text != strings.Join(transcript.lines, "\n")+"\n" {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: rewritten", file)
	}
}

// play runs the conversation. If strict, it stops at the first step in which the relay does not say what it should; in an open
// transcript that is the one that is marked.
func play(t *Transcript, newPlayer NewPlayer, strict bool) (heard [][]Event, complaint string) {
	player, err := newPlayer(t)
	if err != nil {
		return nil, fmt.Sprintf("%s: start: %v", t.File, err)
	}
	defer player.Close()
	for _, step := range t.Steps {
		if step.Said != nil {
			if step.Said.Command.Verb == "wait" {
				player.Wait(step.Said.Command.Wait)
			} else {
				err = player.Say(step.Said.Actor, step.Said.Command)
			}
		}
		events, faults := player.Heard()
		heard = append(heard, events)
		where := fmt.Sprintf("%s:%d: at the start", t.File, 1)
		if step.Said != nil {
			where = fmt.Sprintf("%s:%d: after %s > %s", t.File, step.Said.No, step.Said.Actor, step.Said.Text)
		}
		if err = errors.Join(err, faults); err != nil {
			return heard, fmt.Sprintf("%s\n  %v", where, err)
		}
		differ, differences := compare(step.Heard, events)
		if here, wrong := step.expected(t.Open, differ); len(t.Open) > 0 && (here || wrong != "") {
			if wrong != "" {
				wrong = strings.Join(append([]string{where, wrong}, differences...), "\n")
			}
			return heard, wrong
		}
		if strict && len(differences) > 0 {
			return heard, where + "\n" + strings.Join(differences, "\n") + "\n  (-update writes what was heard into the file)"
		}
	}
	return heard, ""
}

// compare says, for each actor that did not hear what it should, what it should have heard and what it did.
func compare(want []Line, got []Event) (who, differences []string) {
	for _, actor := range actors(want, got) {
		var wanted []string
		from := 0
		for _, line := range want {
			if line.Actor == actor && line.Text != "" {
				wanted = append(wanted, line.Text)
				from = cmp.Or(from, line.No)
			}
		}
		if texts := textsOf(actor, got); !slices.EqualFunc(wanted, texts, matches) {
			at := ""
			if from > 0 {
				at = fmt.Sprintf(" (line %d)", from)
			}
			who = append(who, actor)
			differences = append(differences, fmt.Sprintf("  %s%s\n    want %s\n    got  %s", actor, at, block(wanted), block(texts)))
		}
	}
	slices.Sort(who)
	return who, differences
}

// matches compares one line; " ..." at its end leaves the rest open.
func matches(want, got string) bool {
	if start, open := strings.CutSuffix(want, " ..."); open {
		return got == start || strings.HasPrefix(got, start+" ")
	}
	return want == got
}

func block(lines []string) string {
	if len(lines) == 0 {
		return "(silence)"
	}
	return strings.Join(lines, "\n         ")
}

// actors lists who should hear or did hear something: the control plane's first, then the clients in order of number.
func actors(want []Line, got []Event) []string {
	var all []string
	for _, line := range want {
		all = append(all, line.Actor)
	}
	for _, event := range got {
		all = append(all, event.Actor)
	}
	rank := func(actor string) int {
		return slices.IndexFunc([]string{"up", "aux", "solo", "trial", "probe", "b.up", "b.aux", "b.solo", "b.trial", "b.probe", "c"}, func(kind string) bool { return strings.HasPrefix(actor, kind) })
	}
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	return slices.Compact(all)
}

func textsOf(actor string, events []Event) []string {
	var texts []string
	for _, event := range events {
		if event.Actor == actor {
			texts = append(texts, event.Text)
		}
	}
	return texts
}
