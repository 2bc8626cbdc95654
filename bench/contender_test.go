//go:build linux

package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func labels(all []contender) (text string) {
	for _, c := range all {
		text += " " + c.label
	}
	return strings.TrimSpace(text)
}

func TestEveryContenderHasALabelOfItsOwn(t *testing.T) {
	for _, test := range []struct{ servers, want string }{
		{"floor,relay", "floor relay"},
		{"relay,relay", "relay relay#2"},
		{"relay,relay=/tmp/old", "relay relay=old"},
		{"relay=/tmp/a,relay=/tmp/a", "relay=a relay=a#2"},
		{"relay=a,relay=b,relay=a,relay=a", "relay=a relay=b relay=a#2 relay=a#3"},
		{"relay=1/xds-relay,relay=2/xds-relay,relay=2/xds-relay", "relay=1/xds-relay relay=2/xds-relay relay=2/xds-relay#2"},
		{"relay=a,relay=./a", "relay=a relay=./a"},
		{"relay,relay=xds-relay", "relay relay=xds-relay"},
	} {
		all, err := parseContenders(strings.Split(test.servers, ","))
		if err != nil || labels(all) != test.want {
			t.Errorf("%s: %q (%v), want %q", test.servers, labels(all), err, test.want)
		}
		for _, c := range all {
			if c.kind != "relay" && c.label != "floor" {
				t.Errorf("%s: %s takes part as %s", test.servers, c.label, c.kind)
			}
		}
	}
}

// script is a program that runs lines of shell.
func script(t *testing.T, name, lines string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+lines+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// pretender says that it is a relay, and how else it was called.
const pretender = `if [ "$1" = version ]; then printf 'xds-relay v7\n  revision  abc\n'; else echo "$0 $@"; exit 3; fi`

func TestBinariesAreExaminedBeforeARun(t *testing.T) {
	t.Chdir(t.TempDir()) // where nothing can be built
	old := script(t, "old", pretender)
	script(t, "bin/xds-relay", pretender)
	if err := os.Symlink("xds-relay", "bin/link"); err != nil {
		t.Fatal(err)
	}
	script(t, "plain", pretender)
	if err := os.Chmod("plain", 0o644); err != nil {
		t.Fatal(err)
	}
	script(t, "refuses", "echo unknown command; exit 1")
	script(t, "other", "echo envoy version 1.40")
	script(t, "hangs", "exec sleep 60")
	defer func(d time.Duration) { versionWithin = d }(versionWithin)
	for _, test := range []struct {
		servers, want string
		within        time.Duration
	}{
		{"relay=none", "relay=none cannot be started: fork/exec ", time.Minute},
		{"relay=none", "no such file or directory", time.Minute},
		{"relay=plain", "relay=plain cannot be started: fork/exec ", time.Minute},
		{"relay=bin", "permission denied", time.Minute},
		{"relay=true", "no such file or directory", time.Minute}, // it is a path, not a command
		{"relay=refuses", `refuses is not a relay: its version says "unknown command\n" (exit status 1)`, time.Minute},
		{"relay=other", "other is not a relay: its version says \"envoy version 1.40\\n\" (exit status 0)", time.Minute},
		{"relay=hangs", "hangs version does not end within 50ms", 50 * time.Millisecond},
		{"relay=old,relay=other", "other is not a relay", time.Minute},
		{"relay,relay=bin/xds-relay", "copy the binary elsewhere first", time.Minute},
		{"chain,relay=bin/link", "copy the binary elsewhere first", time.Minute},
		{"relay,relay=old", "run the bench in the root of the repository", time.Minute},
		{"relay=", "relay=: give the path", time.Minute},
		{"floor=" + old, "floor=old: only a relay can be given as a binary", time.Minute},
		{"lynx", `no such server: "lynx": there are floor,`, time.Minute},
	} {
		versionWithin = test.within
		for _, start := range []func() error{
			func() error {
				cmd := newPeers()
				cmd.SetArgs([]string{"--servers", test.servers, "--out", "results.json"})
				cmd.SilenceErrors, cmd.SilenceUsage = true, true
				cmd.SetOut(&bytes.Buffer{})
				return cmd.Execute()
			},
			func() error {
				if strings.Contains(test.servers, ",") {
					return fmt.Errorf("%s", test.want) // run has one server
				}
				return bench("fanout", "--start", test.servers)
			},
		} {
			if err := start(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %q", test.servers, err, test.want)
			}
		}
	}
	if _, err := os.Stat("results.json"); err == nil {
		t.Error("there are results of what was never run")
	}
}

// TestTheGivenBinaryIsRun: with flags that any relay knows, and its version is kept.
func TestTheGivenBinaryIsRun(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	script(t, "old", pretender)
	script(t, "bin/xds-relay", "echo the wrong one")
	all, err := prepare(t.Context(), []string{"relay=old", "relay=old"})
	if err != nil {
		t.Fatal(err)
	}
	versions := newFile(t.Context(), "", all).Versions
	for _, c := range all {
		s, err := c.start(t.Context(), nil)
		if err == nil {
			s.Stop()
			t.Fatal("it has started")
		}
		if text := err.Error(); !strings.Contains(text, "process: "+c.label+" has ended") || !strings.Contains(text, filepath.Join(dir, "old")+" serve --upstream 127.0.0.1:") {
			t.Errorf("%s: %v", c.label, err)
		}
		if got := versions[c.label]; got != "v7 revision abc" {
			t.Errorf("%s: the results say it is %q", c.label, got)
		}
	}
}

// TestOrderFavoursNobody: in six repetitions each of three servers runs before each other
// one three times, and is first, second and last twice.
func TestOrderFavoursNobody(t *testing.T) {
	all, err := parseContenders([]string{"relay", "relay=old", "relay=old"})
	if err != nil {
		t.Fatal(err)
	}
	before, place := make(map[string]int), make(map[string]int)
	for rep := range 6 {
		order := turn(all, rep)
		for i, a := range order {
			place[fmt.Sprint(a.label, i)]++
			for _, b := range order[i+1:] {
				before[a.label+" "+b.label]++
			}
		}
	}
	for pair, n := range before {
		if n != 3 {
			t.Errorf("%s: %d times in this order, want 3", pair, n)
		}
	}
	if n := slices.Collect(maps.Values(place)); len(before) != 6 || len(n) != 9 || slices.Max(n) != 2 {
		t.Errorf("order %v, places %v", before, place)
	}
	var two string
	for rep := range 4 {
		two += labels(turn(all[:2], rep)) + ", "
	}
	if two != "relay relay=old, relay=old relay, relay=old relay, relay relay=old, " {
		t.Errorf("of two: %s", two)
	}
	if turn(nil, 3) != nil || labels(all) != "relay relay=old relay=old#2" {
		t.Errorf("turn has changed what it was given: %s", labels(all))
	}
}

// TestABinaryTakesPartWhereRelayDoes: and nowhere else.
func TestABinaryTakesPartWhereRelayDoes(t *testing.T) {
	all, err := parseContenders([]string{"mux", "relay=old", "relay"})
	if err != nil {
		t.Fatal(err)
	}
	m := match{servers: all}
	for _, c := range contests {
		want := "relay=old relay"
		if slices.Contains(c.servers, "mux") {
			want += " mux"
		}
		if got := labels(m.entrants(c)); got != want {
			t.Errorf("%s: %s, want %s", c.name, got, want)
		}
	}
}
