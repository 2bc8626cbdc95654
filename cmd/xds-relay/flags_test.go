package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/xds-relay/xds-relay/internal/config"
)

// load is the configuration that a command line makes up.
func load(t *testing.T, args ...string) *config.Config {
	t.Helper()
	var s settings
	cmd := &cobra.Command{}
	s.register(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	c, err := s.load(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFlagsOverrideTheFile: of a file, --set and a flag, the later one wins.
func TestFlagsOverrideTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relay.yaml")
	text := `
upstream: {address: "127.0.0.1:1", node: {id: from-file, cluster: from-file}}
downstream: {listen: ["127.0.0.1:2"]}
admin: {listen: "127.0.0.1:3"}
log: {level: warn}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	type values struct {
		upstream, id, cluster, admin string
		listen                       []string
		level                        config.LogLevel
	}
	of := func(c *config.Config) values {
		n := c.Upstream.Node
		return values{c.Upstream.Address, n.ID, n.Cluster, c.Admin.Listen, c.Downstream.Listen, c.Log.Level}
	}
	for _, tt := range []struct {
		args []string
		want values
	}{
		{nil, values{"127.0.0.1:1", "from-file", "from-file", "127.0.0.1:3", []string{"127.0.0.1:2"}, "warn"}},
		{
			[]string{"--upstream", "127.0.0.1:11", "--node-id", "edge-1", "--admin", "", "--log-level", "debug",
				"--listen", "[::1]:12", "--listen", "unix:///run/it's.sock", "--set", "upstream.node.cluster=from-set", "--set", "upstream.node.id=from-set"},
			values{"127.0.0.1:11", "edge-1", "from-set", "", []string{"[::1]:12", "unix:///run/it's.sock"}, "debug"},
		},
	} {
		if got := of(load(t, append([]string{"-c", file}, tt.args...)...)); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q: got %+v, want %+v", tt.args, got, tt.want)
		}
	}
}

// TestEveryCommandHasAnExample, and says in one line what it is for.
func TestEveryCommandHasAnExample(t *testing.T) {
	root := newRoot()
	commands := append(root.Commands(), root)
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" { // its own are cobra's
			commands = append(commands, cmd.Commands()...)
		}
	}
	for _, cmd := range commands {
		if cmd.Example == "" || cmd.Short == "" {
			t.Errorf("%s has no example, or no short text", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			if !strings.HasPrefix(line, "  xds-relay ") {
				t.Errorf("%s: the example %q is not a command", cmd.CommandPath(), line)
			}
		}
	}
}
