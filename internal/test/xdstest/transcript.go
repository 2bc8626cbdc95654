package xdstest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Transcript is one file: a claim about the relay, and the conversation that shows it.
type Transcript struct {
	File   string
	Claim  string   // the rule in one sentence
	Rules  []string // its ids
	Edge   string   // why only a relay with its gRPC edges can play it, or ""
	Open   []string // those of the rules that the relay does not keep yet (open.go)
	Config []string // key=value, as for the relay's --set
	// Policy is the rules of what clients may read, in force from the start, and Later those that replace them.
	Policy, Later []string
	Show          []string // fields to print that are otherwise left out
	Steps         []Step

	lines []string // as read
	width int      // of the actors' column
}

// Step is a line said to the relay and everything it says before the next one. The first step has no said line.
type Step struct {
	Said  *Line
	Heard []Line

	first, end int // its place in the file, comments included
}

// Line is one line of the conversation.
type Line struct {
	Actor   string
	Text    string
	Command Command // of said lines
	No      int     // counted from 1
	Open    bool    // marked: here the relay goes wrong
}

var (
	fileName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*\.txt$`)
	ruleID   = regexp.MustCompile(`^[A-Z][A-Z0-9]*(-[A-Z]+)*-[0-9]+[a-z]?$`)
	lineForm = regexp.MustCompile(`^(\*|(?:b\.)?[a-z]+[0-9]*)\s+([<>])(?:\s+(.*))?$`)
)

// Load reads and parses a file, whose name must be a claim in kebab case.
func Load(file string) (*Transcript, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if !fileName.MatchString(filepath.Base(file)) {
		return nil, fmt.Errorf("%s: the name of a transcript is its claim in kebab-case, with .txt", file)
	}
	return Parse(file, string(text))
}

// Parse reads a transcript; the file's name is for messages.
func Parse(file, text string) (*Transcript, error) {
	t := &Transcript{File: file, lines: strings.Split(strings.TrimRight(text, "\n"), "\n"), width: 2}
	t.Steps = []Step{{}}
	for i, raw := range t.lines {
		if err := t.line(i, strings.TrimSpace(raw)); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
	}
	t.Steps[len(t.Steps)-1].end = len(t.lines)
	if t.Claim == "" || len(t.Rules) == 0 {
		return nil, fmt.Errorf("%s: the first line is \"# the rule in one sentence.\", the second \"# spec: RULE-ID\"", file)
	}
	if err := t.checkOpen(); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Transcript) line(i int, s string) error {
	if s == "" {
		return nil
	}
	if comment, ok := strings.CutPrefix(s, "#"); ok {
		return t.comment(i, strings.TrimSpace(comment))
	}
	m := lineForm.FindStringSubmatch(s)
	if m == nil {
		return fmt.Errorf("a line is a # comment, actor > command, or actor < event: %s", s)
	}
	actor, heard := m[1], m[2] == "<"
	text, open := cutMark(m[3])
	if open && !heard {
		return fmt.Errorf("%s marks a < line: where the relay is to be silent, write %s < %s", openMark, actor, openMark)
	}
	words, err := tokens(text)
	if err != nil {
		return err
	}
	if len(words) == 0 && !(heard && open) {
		return fmt.Errorf("%s says nothing", actor)
	}
	t.width = max(t.width, len(actor))
	line := Line{Actor: actor, Text: strings.Join(words, " "), No: i + 1, Open: open}
	if heard {
		if _, err := verbsOf(actor); err != nil || actor == "*" {
			return fmt.Errorf("%s cannot hear: use up, aux, solo, probe, b.up, c1, c2, …", actor)
		}
		last := &t.Steps[len(t.Steps)-1]
		last.Heard = append(last.Heard, line)
		return nil
	}
	if line.Command, err = ParseCommand(actor, text); err != nil {
		return err
	}
	t.Steps[len(t.Steps)-1].end = i
	t.Steps = append(t.Steps, Step{Said: &line, first: i})
	return nil
}

// comment takes in the header: the claim, then keys, before anything is said. Other comments are the author's own.
func (t *Transcript) comment(i int, s string) error {
	if i == 0 {
		t.Claim = s
		return nil
	}
	key, value, keyed := strings.Cut(s, ":")
	if len(t.Steps) > 1 || len(t.Steps[0].Heard) > 0 {
		return nil
	}
	if key == "edge" && keyed {
		if t.Edge = strings.TrimSpace(value); t.Edge == "" {
			return fmt.Errorf("edge is followed by the reason why the transcript needs one")
		}
		return nil
	}
	switch rule := "  - " + strings.TrimSpace(value) + "\n"; {
	case key == "rule" && keyed:
		t.Policy = append(t.Policy, rule)
		return nil
	case key == "later" && keyed:
		t.Later = append(t.Later, rule)
		return nil
	}
	values, err := tokens(value)
	if err != nil {
		return nil // a comment may hold a quote
	}
	switch key {
	case "spec":
		if i != 1 {
			return fmt.Errorf("the spec line is the second line")
		}
		t.Rules, err = ruleIDs(values)
	case "open":
		if !keyed {
			return nil
		}
		if len(values) == 0 {
			return fmt.Errorf("open is followed by the rules that are")
		}
		t.Open, err = ruleIDs(values)
	case "config":
		t.Config = append(t.Config, values...)
		for _, kv := range values {
			if !strings.Contains(kv, "=") {
				return fmt.Errorf("config is key=value, not %s", kv)
			}
		}
	case "show":
		t.Show = values
		for _, field := range values {
			if !slices.Contains([]string{"nonce", "version", "id", "via", "features", "node"}, field) {
				return fmt.Errorf("show knows nonce, version, id, via, features and node, not %s", field)
			}
		}
	}
	return err
}

// PolicyFile is a file of rules (authz.rules_file); empty if there are none.
func PolicyFile(rules []string) string {
	if len(rules) == 0 {
		return ""
	}
	return "rules:\n" + strings.Join(rules, "")
}

func ruleIDs(values []string) ([]string, error) {
	for _, id := range values {
		if !ruleID.MatchString(id) {
			return nil, fmt.Errorf("%s is not the id of a rule", id)
		}
	}
	return values, nil
}

// Rewrite is the file with the "<" lines of every step replaced by what was heard instead, where that is something else.
// Comments, blank lines and ">" lines stay as they are.
func (t *Transcript) Rewrite(heard [][]Event) string {
	var out []string
	for i, step := range t.Steps {
		lines := t.lines[step.first:step.end]
		if i < len(heard) {
			if _, differences := compare(step.Heard, heard[i]); len(differences) > 0 {
				lines = t.replace(step, lines, heard[i])
			}
		}
		out = append(out, lines...)
	}
	return strings.Join(out, "\n") + "\n"
}

func (t *Transcript) replace(step Step, lines []string, heard []Event) []string {
	at := len(lines) // where the new lines go: where the old ones began, or behind what was said, or at the end of the header
	if step.Said != nil {
		at = 1
	}
	if len(step.Heard) > 0 {
		at = step.Heard[0].No - 1 - step.first
	}
	var out []string
	for i, s := range lines {
		if i == at {
			out = append(out, t.print(heard)...)
		}
		if m := lineForm.FindStringSubmatch(strings.TrimSpace(s)); m == nil || m[2] != "<" {
			out = append(out, s)
		}
	}
	if at == len(lines) {
		out = append(out, t.print(heard)...)
	}
	return out
}

// print lists events actor by actor: only within one actor does their order mean anything.
func (t *Transcript) print(heard []Event) []string {
	var out []string
	for _, actor := range actors(nil, heard) {
		for _, text := range textsOf(actor, heard) {
			out = append(out, fmt.Sprintf("%-*s < %s", t.width, actor, text))
		}
	}
	return out
}
