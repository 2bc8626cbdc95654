package main

import (
	"os"
	"strings"
	"testing"
)

// TestReadmeCommands runs those of README.md's commands that start this program, from the root of the repository; only ports
// and times are others.
func TestReadmeCommands(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	args := func(begins string) []string {
		t.Helper()
		for line := range strings.Lines(string(text)) {
			for _, starts := range []string{"go run ./cmd/xds-relay ", "./xds-relay "} {
				if rest, ok := strings.CutPrefix(line, starts); ok && strings.HasPrefix(rest, begins) {
					return strings.Fields(strings.NewReplacer(":18000", ":0", ":18001", ":0", ":15010", ":1", "30s", "3s").Replace(rest))
				}
			}
		}
		t.Fatalf("README.md has no command %s", begins)
		return nil
	}
	demo := program(t, args("demo --for ")...)
	if said, err := demo.CombinedOutput(); err != nil {
		t.Errorf("demo: %v\n%s", err, said)
	}
	for _, begins := range []string{"serve --from deploy/examples/files/xds", "serve --upstream 127.0.0.1:15010 "} {
		s := serveWith(t, func(s *served) { s.cmd.Dir = "../.." }, args(begins)[1:]...)
		if code, body := get(t, s.admin+"/readyz"); code != 200 {
			t.Errorf("%s: %d %s", begins, code, body)
		}
		s.stop(t)
	}
}
