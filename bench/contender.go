//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/xds-relay/xds-relay/bench/internal/process"
	"github.com/xds-relay/xds-relay/bench/internal/result"
)

// The servers that the bench can start by itself: those of bench/peers, a relay, and
// a relay behind a relay.
var startable = []string{"floor", "floor-fixed", "relay", "chain", "linear", "snapshot", "mux"}

// source is what a server's program is built from.
type source struct{ module, pkg, program string }

var (
	relaySource = &source{".", "./cmd/xds-relay", "bin/xds-relay"}
	peersSource = &source{"bench/peers", ".", "bin/xds-peers"}
)

// contender is a server that the bench starts, as the command line names it: by its kind,
// or as relay=<path>, which is a relay that is already built.
type contender struct {
	label   string // what results call it
	kind    string // one of startable
	program string
	source  *source // what program is built from; nil: it was given
	version string  // what a program that was given says of itself

	secured *secured // nil: it serves in plaintext
	args    []string // a relay's, more
}

// parseContenders reads names, and gives each a label of its own. A program that was given
// is called after its file, or by its path if another one's file has the same name; what is
// named again gets a number.
func parseContenders(names []string) ([]contender, error) {
	var all []contender
	for _, name := range names {
		kind, path, given := strings.Cut(name, "=")
		c := contender{label: kind, kind: kind, program: path}
		switch {
		case !slices.Contains(startable, kind):
			return nil, fmt.Errorf("no such server: %q: there are %s, and relay=<path of a binary>", kind, strings.Join(startable, ", "))
		case given && kind != "relay":
			return nil, fmt.Errorf("%s: only a relay can be given as a binary: relay=<path>", name)
		case given && path == "":
			return nil, errors.New("relay=: give the path of a binary, or relay alone for that of this tree")
		case given:
		case kind == "relay" || kind == "chain":
			c.source, c.program = relaySource, relaySource.program
		default:
			c.source, c.program = peersSource, peersSource.program
		}
		all = append(all, c)
	}
	times := make(map[string]int)
	for i := range all {
		c := &all[i]
		if c.source == nil {
			c.label = "relay=" + fileName(c.program, all)
		}
		times[c.label]++
		if n := times[c.label]; n > 1 {
			c.label += fmt.Sprint(result.Again, n)
		}
	}
	return all, nil
}

// fileName is the last part of a path or, if another program that was given has the same, the path.
func fileName(path string, all []contender) string {
	name := filepath.Base(path)
	for _, c := range all {
		if c.source == nil && c.program != path && filepath.Base(c.program) == name {
			return path
		}
	}
	return name
}

// prepare looks at the programs that were given, and builds the others from the tree that
// the bench is run in.
func prepare(ctx context.Context, names []string) ([]contender, error) {
	all, err := parseContenders(names)
	if err != nil {
		return nil, err
	}
	built := make(map[*source]string) // the program of each
	for i := range all {
		c := &all[i]
		if c.program, err = filepath.Abs(c.program); err != nil {
			return nil, err
		}
		if c.source != nil {
			built[c.source] = c.program
		}
	}
	for i := range all {
		if c := &all[i]; c.source == nil {
			if err := c.examine(ctx, built); err != nil {
				return nil, err
			}
		}
	}
	if _, err := os.Stat("go.mod"); err != nil && len(built) > 0 {
		return nil, errors.New("servers are built from source: run the bench in the root of the repository, or give --server")
	}
	for s, program := range built {
		if err := process.Build(ctx, s.module, s.pkg, program); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// versionWithin is how long a program may take to say what it is.
var versionWithin = 10 * time.Second

// examine rejects a program that is not a relay, or that the build here would overwrite,
// before an hour is spent on it.
func (c *contender) examine(ctx context.Context, built map[*source]string) error {
	ctx, cancel := context.WithTimeout(ctx, versionWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program, "version")
	cmd.WaitDelay = time.Second // for what it may have started
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %s version does not end within %v: it is not a relay", c.label, c.program, versionWithin)
	case err != nil && !errors.As(err, &ended):
		return fmt.Errorf("%s cannot be started: %w", c.label, err)
	case err != nil || !strings.HasPrefix(string(out), "xds-relay "):
		return fmt.Errorf("%s: %s is not a relay: its version says %.100q (%v)", c.label, c.program, out, cmd.ProcessState)
	}
	c.version = strings.Join(strings.Fields(string(out))[1:], " ")
	given, err := os.Stat(c.program)
	if err != nil {
		return fmt.Errorf("%s: %w", c.label, err)
	}
	for _, program := range built {
		if replaced, err := os.Stat(program); err == nil && os.SameFile(given, replaced) {
			return fmt.Errorf("%s: the relay of this tree is built as %s: copy the binary elsewhere first, or both would be the new one", c.label, program)
		}
	}
	return nil
}
