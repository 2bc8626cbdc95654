package xdstest

import (
	"fmt"
	"slices"
	"strings"
)

// An open transcript states a rule that the relay does not keep yet. Its header says which ("# open: RULE-ID"), and the
// line at which the relay goes wrong ends in openMark. It is played like any other, and must go wrong there, and not before.

// openMark ends a "<" line that the relay does not say, or says otherwise. Alone on such a line it says that the actor
// ought to hear nothing there.
const openMark = "!open"

// cutMark takes the mark off a line.
func cutMark(text string) (rest string, marked bool) {
	rest, marked = strings.CutSuffix(text, openMark)
	if marked && (rest == "" || strings.HasSuffix(rest, " ")) {
		return strings.TrimRight(rest, " \t"), true
	}
	return text, false
}

// marked are the actors with a mark in a step.
func (s Step) marked() (actors []string) {
	for _, line := range s.Heard {
		if line.Open {
			actors = append(actors, line.Actor)
		}
	}
	slices.Sort(actors)
	return slices.Compact(actors)
}

// checkOpen holds the header against the marks.
func (t *Transcript) checkOpen() error {
	var marks []int
	for i, s := range t.Steps {
		if len(s.marked()) > 0 {
			marks = append(marks, i)
		}
	}
	switch {
	case len(t.Open) == 0 && len(marks) > 0:
		return fmt.Errorf("%s: a line is marked %s, and the header does not say which rule is: # open: RULE-ID", t.File, openMark)
	case len(t.Open) > 0 && len(marks) != 1:
		return fmt.Errorf("%s: %s is open, so one step has lines that end in %s; %d have", t.File, strings.Join(t.Open, " "), openMark, len(marks))
	}
	for _, id := range t.Open {
		if !slices.Contains(t.Rules, id) {
			return fmt.Errorf("%s: %s is open, and not among the rules that the transcript states (# spec)", t.File, id)
		}
	}
	return nil
}

// expected judges a step of an open transcript in which these actors differ: whether it is the one that is marked, and whether
// the marked actors, and no others, differ there. The complaint says what is to be done.
func (s Step) expected(open []string, differ []string) (here bool, complaint string) {
	marked := s.marked()
	rules := strings.Join(open, " ")
	switch {
	case len(marked) == 0 && len(differ) > 0:
		return false, fmt.Sprintf("  %s is open, but it goes wrong elsewhere than at the line that ends in %s", rules, openMark)
	case len(marked) == 0:
		return false, ""
	case len(differ) == 0:
		return true, fmt.Sprintf("  %s is open no more: delete \"# open\" and %s, so that the transcript is played to its end", rules, openMark)
	case slices.Equal(marked, differ):
		return true, ""
	}
	return true, fmt.Sprintf("  %s is open at %q, but what differs is %q", rules, marked, differ)
}
