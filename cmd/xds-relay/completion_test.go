package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompletion: there is a script for each shell, and flags complete files only where
// they take one.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		out, err := program(t, "completion", shell).Output()
		if err != nil || !strings.Contains(string(out), "xds-relay") {
			t.Errorf("completion %s: %v, %d bytes", shell, err, len(out))
		}
		if path, err := exec.LookPath(shell); err == nil && shell == "bash" {
			file := filepath.Join(t.TempDir(), "completion")
			if err := os.WriteFile(file, out, 0o600); err != nil {
				t.Fatal(err)
			}
			if text, err := exec.Command(path, "-c", "source '"+file+"' && complete -p xds-relay").CombinedOutput(); err != nil {
				t.Errorf("bash does not take its script: %v\n%s", err, text)
			}
		}
	}
	for _, tt := range []struct{ line, want string }{
		{"serve -c", "yaml\nyml\n:8"},      // files with these ends
		{"validate --config", "yaml\nyml"}, //
		{"serve --log-level", "debug\ninfo\nwarn\nerror\n:4"},
		{"version -o", "text\njson\n:4"},
		{"policy test --rules", "yaml\nyml\n:8"},
		{"policy lint -c", "yaml\nyml\n:8"},
		{"policy test --type", "LDS\nRDS\nCDS"},
		{"policy", "lint"},
		{"serve --listen", ":4"}, // nothing
		{"serve", ":4"},          //
	} {
		out, err := program(t, append(strings.Fields("__complete "+tt.line), "")...).Output()
		if err != nil || !strings.HasPrefix(string(out), tt.want) {
			t.Errorf("%s: %v, %q, want %q", tt.line, err, out, tt.want)
		}
	}
}

// TestFileThatIsNotRead: who gives no file although one lies here is told so.
func TestFileThatIsNotRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, usualFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const hint = "there is a relay.yaml here, which is not read without -c relay.yaml"
	for _, tt := range []struct {
		args []string
		said bool
	}{
		{[]string{"validate"}, true},
		{[]string{"validate", "-c", usualFile}, false},
		{[]string{"serve", "--listen", "127.0.0.1:99", "--set", "downstream.listen=[nonsense]"}, false}, // it fails first
	} {
		cmd := program(t, tt.args...)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput() // what it says counts
		if strings.Contains(string(out), hint) != tt.said {
			t.Errorf("%v says %q; want the hint: %v", tt.args, out, tt.said)
		}
	}
	taken := serveProgram(t)
	cmd := program(t, "serve", "--listen", taken.address) // it says so, and fails to bind
	cmd.Dir = dir
	if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), hint) {
		t.Errorf("serve says %q", out)
	}
	taken.stop(t)
}
