package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// healthcheck runs the command, with what it prints on both outputs.
func healthcheck(t *testing.T, env string, args ...string) (code int, out, errs string) {
	t.Helper()
	cmd := program(t, append([]string{"healthcheck"}, args...)...)
	if env != "" {
		cmd.Env = append(cmd.Env, addressEnv+"="+env)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // the exit code tells
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// TestHealthcheck asks a relay that waits for its control plane, over both of its listeners,
// one of which is a Unix socket: it is alive, and not ready.
func TestHealthcheck(t *testing.T) {
	dir := t.TempDir()
	socket := "unix://" + filepath.Join(dir, "probes.sock")
	config := filepath.Join(dir, "relay.yaml")
	if err := os.WriteFile(config, []byte("metrics: {listen: \""+socket+"\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	nothing := filepath.Join(dir, "nothing.yaml")
	if err := os.WriteFile(nothing, []byte("log: {level: info}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	s := serveProgram(t, "-c", config, "--upstream", "127.0.0.1:1", "--set", "downstream.ready_types=[CDS]")
	adminAddress := strings.TrimPrefix(s.admin, "http://")
	for _, tt := range []struct {
		env      string
		args     []string
		code     int
		out, err string
	}{
		{"", []string{"--live", "--address", adminAddress}, 0, "live\n", ""},
		{"", []string{"--live", "--address", s.admin}, 0, "live\n", ""},
		{"", []string{"--live", "--address", socket}, 0, "live\n", ""},
		{socket, []string{"--live"}, 0, "live\n", ""},
		{"", []string{"--live", "-c", config}, 0, "live\n", ""},
		{adminAddress, []string{"--live", "-c", nothing}, 0, "live\n", ""},
		{"", []string{"--address", adminAddress}, 1, "", adminAddress + " answers /readyz with 503: waiting for upstream to answer for CDS\n"},
		{"", []string{"-c", config}, 1, "", "waiting for upstream to answer for CDS\n"},
		{"", []string{"-c", nothing}, 1, "", "sets neither metrics.listen nor admin.listen"},
		{"", []string{"-c", config + "x"}, 1, "", "no such file"},
		{"", []string{"--address", "127.0.0.1:1"}, 1, "", "nobody answers at 127.0.0.1:1: "},
		{"", []string{"--address", "unix:///no/socket"}, 1, "", "nobody answers at unix:///no/socket: "},
		{"", []string{"--address", s.address}, 1, "", "what listens at " + s.address + " does not answer /readyz as a relay does: "},
		{"", []string{"--address", "nonsense"}, 1, "", `"nonsense" has no port`},
		{"", []string{"--address", mute.Addr().String(), "--timeout", "100ms"}, 1, "", "does not answer /readyz in time"},
		{"", []string{"extra"}, 2, "", "unexpected argument"},
	} {
		code, out, errs := healthcheck(t, tt.env, tt.args...)
		if code != tt.code || out != tt.out || !strings.Contains(errs, tt.err) {
			t.Errorf("%s %v: exit %d, %q, %q; want %d, %q and %q", tt.env, tt.args, code, out, errs, tt.code, tt.out, tt.err)
		}
	}
	s.stop(t)
}

// TestHealthcheckOfTheImage: the command of deploy/Dockerfile, with the file that the image's
// CMD names.
func TestHealthcheckOfTheImage(t *testing.T) {
	text, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	command := func(before string) (words []string) {
		_, rest, _ := strings.Cut(string(text), before)
		line, _, _ := strings.Cut(rest, "\n")
		if err := json.Unmarshal([]byte(line), &words); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return words
	}
	serve, health := command("\nCMD "), command("  CMD ")
	file := serve[len(serve)-1]
	if health[0] != "/xds-relay" || health[len(health)-1] != file {
		t.Errorf("the image serves with %q, and is asked with %q", serve, health)
	}
	socket := "unix://" + filepath.Join(t.TempDir(), "probes.sock")
	config := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(config, []byte("metrics: {listen: \""+socket+"\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveProgram(t, "-c", config)
	out, err := program(t, append(health[1:len(health)-1], config)...).CombinedOutput()
	if err != nil || string(out) != "live\n" {
		t.Errorf("%q: %v, %q", health, err, out)
	}
	s.stop(t)
}

// TestHealthcheckOfAllAddresses: what listens on all addresses is asked on this host.
func TestHealthcheckOfAllAddresses(t *testing.T) {
	s := serveProgram(t, "--set", "metrics.listen=0.0.0.0:0")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.metrics, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"", "0.0.0.0", "[::]"} {
		if code, out, errs := healthcheck(t, "", "--address", host+":"+port); code != 0 || out != "ready\n" {
			t.Errorf("%s: exit %d, %q, %q", host, code, out, errs)
		}
	}
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/startupz": 200, "/metrics": 200, "/clients": 404, "/": 404} {
		if code, body := get(t, "http://127.0.0.1:"+port+path); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	s.stop(t)
}
