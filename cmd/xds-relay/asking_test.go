package main

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestWhereToAsk: a relay is asked at a TCP address or a Unix socket, and an error says what to do.
func TestWhereToAsk(t *testing.T) {
	dir := t.TempDir()
	socket := "unix://" + filepath.Join(dir, "admin.sock")
	config, nothing := filepath.Join(dir, "relay.yaml"), filepath.Join(dir, "nothing.yaml")
	for file, text := range map[string]string{config: "admin: {listen: \"" + socket + "\"}\n", nothing: "log: {level: info}\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := serveProgram(t, "--upstream", "127.0.0.1:1", "--admin", socket, "--set", "metrics.listen=127.0.0.1:0")
	shop := &shop{served: s}
	for _, where := range [][]string{{"--address", socket}, {"-c", config}} {
		if out, _ := shop.asks(t, 0, append([]string{"ps"}, where...)...); !strings.Contains(out, "no clients") {
			t.Error(out)
		}
	}
	for _, tt := range []struct {
		code  int
		want  string
		where []string
	}{
		{1, "does not set admin.listen, so the relay cannot be asked; set it", []string{"-c", nothing}},
		{1, "nobody answers at 127.0.0.1:1: ", []string{"--address", "127.0.0.1:1"}},
		{1, "nobody answers at unix:///no/socket: ", []string{"--address", "unix:///no/socket"}},
		{2, `"nonsense" has no port`, []string{"--address", "nonsense"}},
		{1, "does not answer /server_info as a relay does", []string{"--address", s.address}},
		{1, "it is the address of metrics.listen", []string{"--address", s.metrics}},
	} {
		for _, command := range [][]string{{"ps"}, {"check", "--running"}, {"dump"}} {
			_, errs := shop.asks(t, tt.code, append(command, tt.where...)...)
			if !strings.Contains(errs, tt.want) {
				t.Errorf("%v %v: %s", command, tt.where, errs)
			}
		}
	}
	s.stop(t)
}

// TestWatch: where there is no terminal, one page follows the other until Ctrl-C, which is no failure.
func TestWatch(t *testing.T) {
	s := serveProgram(t, "--upstream", "127.0.0.1:1")
	cmd := program(t, "ps", "-w", "--every", "100ms", "--address", s.admin)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for pages := 0; pages < 3 && lines.Scan(); {
		if strings.Contains(lines.Text(), "\x1b") {
			t.Errorf("%q", lines.Text())
		}
		if lines.Text() == "no clients" {
			pages++
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	s.stop(t)
}
