package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// system is a Debian without anything in it but what dpkg needs.
type system struct {
	t    *testing.T
	root string
}

func newSystem(t *testing.T) *system {
	t.Helper()
	for _, tool := range []string{"dpkg", "useradd", "setpriv"} {
		if _, err := exec.LookPath(tool); err != nil || os.Getuid() != 0 {
			t.Skip("the packages are tried where there are dpkg, useradd and setpriv, by root; uid ", os.Getuid(), ", ", err)
		}
	}
	s := &system{t, t.TempDir()}
	for p := s.root; len(p) > len(os.TempDir()); p = filepath.Dir(p) { // the relay's user has to get there
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"etc", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"} {
		if err := os.MkdirAll(s.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"etc/passwd", "etc/group", "etc/shadow", "etc/gshadow", "var/lib/dpkg/status", "var/lib/dpkg/available"} {
		s.write(file, "")
	}
	return s
}

func (s *system) path(name string) string { return filepath.Join(s.root, name) }

func (s *system) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s *system) read(name string) string {
	text, err := os.ReadFile(s.path(name))
	if err != nil {
		s.t.Error(err)
	}
	return string(text)
}

// dpkg runs it on the system. The scripts run in the one around, and are told of DPKG_ROOT.
func (s *system) dpkg(args ...string) string {
	s.t.Helper()
	said, err := exec.Command("dpkg", append([]string{"--root=" + s.root, "--force-script-chrootless", "--force-depends", "--force-confdef"}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("dpkg %q: %v\n%s", args, err, said)
	}
	return string(said)
}

// TestDebian installs the package, runs the relay as the unit does, has it read its configuration again,
// upgrades, and removes and purges it.
func TestDebian(t *testing.T) {
	s := newSystem(t)
	relay := filepath.Join(t.TempDir(), "xds-relay")
	build := exec.Command("go", "build", "-o", relay, "./cmd/xds-relay")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	program, err := os.ReadFile(relay)
	if err != nil {
		t.Fatal(err)
	}
	arch, err := exec.Command("dpkg", "--print-architecture").Output()
	if err != nil {
		t.Fatal(err)
	}
	here := platform{"linux", strings.TrimSpace(string(arch))}
	old, now := staged(t, "v0.1.0", string(program)), staged(t, "v0.2.0", string(program))
	for _, r := range []*release{old, now} {
		if err := r.packaged(here, "deb"); err != nil {
			t.Fatal(err)
		}
	}

	if said := s.dpkg("--install", old.of(here, ".deb")); !strings.Contains(said, "systemctl enable --now xds-relay") {
		t.Errorf("it does not say how to go on:\n%s", said)
	}
	uid, gid := s.user()
	s.owned("etc/xds-relay", 0o750, 0, gid)
	s.owned("etc/xds-relay/relay.yaml", 0o640, 0, gid)
	s.owned("usr/bin/xds-relay", 0o755, 0, 0)

	// What systemd makes of StateDirectory.
	state := s.path("var/lib/xds-relay")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(state, uid, gid); err != nil {
		t.Fatal(err)
	}
	config := s.read("etc/xds-relay/relay.yaml")
	for before, after := range map[string]string{"/var/lib/xds-relay": state, ":18000": ":0", ":18001": ":0", ":18002": ":0"} {
		config = strings.ReplaceAll(config, before, after)
	}
	s.write("etc/xds-relay/relay.yaml", config)
	s.starts(uid, gid)

	// An upgrade, and a step back, leave alone what is not the package's.
	s.write("var/lib/xds-relay/snapshot", "the last known good state")
	for _, r := range []*release{now, old, now} {
		s.dpkg("--install", r.of(here, ".deb"))
		if s.read("etc/xds-relay/relay.yaml") != config || s.read("var/lib/xds-relay/snapshot") != "the last known good state" {
			t.Errorf("%s has changed the configuration or the snapshot", r.version)
		}
		s.owned("etc/xds-relay/relay.yaml", 0o640, 0, gid)
		s.starts(uid, gid)
	}

	s.dpkg("--remove", "xds-relay")
	if _, err := os.Stat(s.path("usr/bin/xds-relay")); !os.IsNotExist(err) {
		t.Errorf("the program after it is removed: %v", err)
	}
	if s.read("etc/xds-relay/relay.yaml") != config || s.read("var/lib/xds-relay/snapshot") == "" {
		t.Error("only a purge takes the configuration and the snapshot away")
	}
	s.dpkg("--purge", "xds-relay")
	for _, name := range []string{"etc/xds-relay", "var/lib/xds-relay"} {
		if _, err := os.Stat(s.path(name)); !os.IsNotExist(err) {
			t.Errorf("%s after a purge: %v", name, err)
		}
	}
	if left := s.dpkg("--list"); strings.Contains(left, "xds-relay") {
		t.Errorf("dpkg still knows it:\n%s", left)
	}
}

// user is the relay's.
func (s *system) user() (uid, gid int) {
	s.t.Helper()
	for line := range strings.Lines(s.read("etc/passwd")) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if f[0] != "xds-relay" {
			continue
		}
		uid, _ = strconv.Atoi(f[2])
		gid, _ = strconv.Atoi(f[3])
		if uid == 0 || gid == 0 || f[6] != "/usr/sbin/nologin" {
			s.t.Fatalf("the user is %s", line)
		}
		return uid, gid
	}
	s.t.Fatalf("no user in\n%s", s.read("etc/passwd"))
	return 0, 0
}

func (s *system) owned(name string, mode os.FileMode, uid, gid int) {
	s.t.Helper()
	info, err := os.Stat(s.path(name))
	if err != nil {
		s.t.Error(err)
		return
	}
	of := info.Sys().(*syscall.Stat_t)
	if info.Mode().Perm() != mode || int(of.Uid) != uid || int(of.Gid) != gid {
		s.t.Errorf("%s has mode %o and is of %d:%d, want %o and %d:%d", name, info.Mode().Perm(), of.Uid, of.Gid, mode, uid, gid)
	}
}

// starts runs the unit's commands as systemd would, as far as that goes without it: under the unit's user,
// without capabilities, told of a socket for READY and WATCHDOG.
func (s *system) starts(uid, gid int) {
	s.t.Helper()
	commands := map[string][]string{}
	for line := range strings.Lines(s.read("usr/lib/systemd/system/xds-relay.service")) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && strings.HasPrefix(key, "Exec") {
			for _, path := range []string{"/usr/bin/", "/etc/"} {
				value = strings.ReplaceAll(value, " "+path, " "+s.path(path)+"/")
				if strings.HasPrefix(value, path) {
					value = s.path(path) + value[len(path)-1:]
				}
			}
			commands[key] = append(commands[key], value)
		}
	}
	if len(commands["ExecStart"]) != 1 || len(commands["ExecReload"]) != 2 {
		s.t.Fatalf("the unit's commands: %q", commands)
	}
	as := func(command string) *exec.Cmd {
		return exec.Command("setpriv", append([]string{"--reuid", strconv.Itoa(uid), "--regid", strconv.Itoa(gid), "--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"}, strings.Fields(command)...)...)
	}
	dir := s.path("var/run-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: socket})
	if err != nil {
		s.t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(socket, 0o777); err != nil {
		s.t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := as(commands["ExecStart"][0])
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=300000")
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	hears := func(what string) {
		s.t.Helper()
		b := make([]byte, 4096)
		for _ = l.SetReadDeadline(time.Now().Add(30 * time.Second)); ; {
			n, err := l.Read(b)
			if err != nil {
				_ = cmd.Process.Kill() // it may have ended
				_ = cmd.Wait()
				s.t.Fatalf("%s: %v\n%s", what, err, &log)
			}
			if strings.Contains(string(b[:n]), what) {
				return
			}
		}
	}
	hears("READY=1")
	hears("WATCHDOG=1")
	for _, reload := range commands["ExecReload"] {
		if said, err := as(strings.ReplaceAll(reload, "$MAINPID", strconv.Itoa(cmd.Process.Pid))).CombinedOutput(); err != nil {
			s.t.Errorf("%s: %v\n%s", reload, err, said)
		}
	}
	hears("WATCHDOG=1")
	_ = cmd.Process.Signal(syscall.SIGINT) // SIGTERM would wait for load balancers
	hears("STOPPING=1")
	err = cmd.Wait()
	if err != nil || !strings.Contains(log.String(), "SIGHUP") {
		s.t.Error(fmt.Errorf("it ended with %w, and was asked to reload:\n%s", err, &log))
	}
}
