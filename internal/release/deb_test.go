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

// insideEnv names the directory with the packages to the process in a system of its own.
const insideEnv = "XDS_RELAY_TEST_INSIDE"

// TestDebian installs the package by dpkg into a copy of this system, which is gone afterwards, runs the relay as the unit does,
// has it read its configuration again, upgrades and goes back, and removes and purges it.
func TestDebian(t *testing.T) {
	if dir := os.Getenv(insideEnv); dir != "" {
		inside(t, dir)
		return
	}
	needs(t, "dpkg", "unshare", "setpriv")
	const may = `mount -t tmpfs none "$0" && mkdir "$0/up" "$0/work" "$0/root" && mount -t overlay -o "lowerdir=/,upperdir=$0/up,workdir=$0/work" none "$0/root"`
	if said, err := exec.Command("unshare", "--mount", "sh", "-c", may, t.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("no copy of this system can be made: %v, %s", err, said)
	}
	// What is mounted here is not in the copy, and this may be.
	const copied = `mkdir "$0/root/packages" && cp "$1"/* "$0/root/packages" && cp "$2" "$0/root/test" && for dir in proc dev; do mount --rbind /$dir "$0/root/$dir"; done &&
		mount -t tmpfs none "$0/root/tmp" && mount -t tmpfs none "$0/root/run" && exec chroot "$0/root" /test -test.run '^TestDebian$' -test.v`
	packages := debs(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "sh", "-c", may+" && "+copied, t.TempDir(), packages, self)
	cmd.Env = append(os.Environ(), insideEnv+"=/packages", "TMPDIR=/tmp")
	said, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "--- PASS: TestDebian") {
		t.Errorf("%v\n%s", err, said)
	}
}

// needs skips a test where it cannot run, or takes too long.
func needs(t *testing.T, tools ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-release tries the packages")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil || os.Getuid() != 0 {
			t.Skip("the packages are tried by root, where there are ", tools, "; uid ", os.Getuid(), ", ", err)
		}
	}
}

// debs are packages of two versions, by version, in a directory.
func debs(t *testing.T) (dir string) {
	t.Helper()
	program, err := os.ReadFile(static(t))
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for _, version := range []string{"v0.1.0", "v0.2.0"} {
		r := staged(t, version, string(program))
		if err := r.packaged(here(t), "deb"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(r.of(here(t), ".deb"), filepath.Join(dir, version+".deb")); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestBooted does with the package what an administrator does, with a real systemd: it starts the unit, reloads it, upgrades, goes
// back, has the relay get stuck, and purges it.
func TestBooted(t *testing.T) {
	needs(t, "dpkg", "unshare", "nsenter", "systemctl", "pivot_root")
	scripts := filepath.Join(checkout, "internal/release/testdata")
	booted, err := os.ReadFile(filepath.Join(scripts, "booted.sh"))
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	boot := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net", "--cgroup", "sh", filepath.Join(scripts, "boot.sh"), t.TempDir(), debs(t))
	boot.Stdout, boot.Stderr = &said, &said
	if err := boot.Start(); err != nil {
		t.Skip("no system can be booted here: ", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = boot.Wait() // it is killed
	}()
	defer func() {
		_ = boot.Process.Kill() // and so is all that it has started
		<-ended
	}()
	within := func(script string, args ...string) (string, error) {
		first, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", boot.Process.Pid))
		if err != nil {
			return "", err
		}
		cmd := exec.Command("nsenter", append([]string{"--target", strings.TrimSpace(string(first)), "--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--root", "--wd", "sh", "-s"}, args...)...)
		cmd.Env = []string{"PATH=/usr/bin:/usr/sbin:/bin:/sbin"}
		cmd.Stdin = strings.NewReader(script)
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	up := func() bool {
		text, _ := within("systemctl is-system-running") // it says so with an exit code, too
		return text == "running\n" || text == "degraded\n"
	}
	for begin := time.Now(); !up(); time.Sleep(100 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			t.Skipf("no system can be booted here:\n%s", &said)
		}
	}
	mode := ""
	if _, err := within("systemd-run --wait -p PrivateDevices=yes true"); err != nil {
		mode = "nodev"
		t.Log("systemd cannot make a /dev for a unit here: tried with PrivateDevices=no")
	}
	if text, err := within(string(booted), mode); err != nil || !strings.Contains(text, "all is well") {
		t.Errorf("%v\n%s", err, text)
	}
}

func here(t *testing.T) platform {
	t.Helper()
	arch, err := exec.Command("dpkg", "--print-architecture").Output()
	if err != nil {
		t.Fatal(err)
	}
	return platform{"linux", strings.TrimSpace(string(arch))}
}

// inside is TestDebian in the copy.
func inside(t *testing.T, packages string) {
	s := system{t}
	old, now := filepath.Join(packages, "v0.1.0.deb"), filepath.Join(packages, "v0.2.0.deb")
	if said := s.dpkg("--install", old); !strings.Contains(said, "systemctl enable --now xds-relay") {
		t.Errorf("it does not say how to go on:\n%s", said)
	}
	uid, gid := s.user()
	s.owned("/etc/xds-relay", 0o750, 0, gid)
	s.owned(conffile, 0o640, 0, gid)
	s.owned("/usr/bin/xds-relay", 0o755, 0, 0)
	if said, err := exec.Command("xds-relay", "validate", "-c", conffile).CombinedOutput(); err != nil {
		t.Errorf("the configuration of the package: %v\n%s", err, said)
	}
	if analyze, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("the unit is not verified: systemd-analyze is not here")
	} else if said, err := exec.Command(analyze, "verify", unitFile).CombinedOutput(); err != nil || bytes.Contains(said, []byte("xds-relay")) {
		t.Errorf("verify: %v\n%s", err, said)
	}
	// What systemd makes of StateDirectory.
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(state, uid, gid); err != nil {
		t.Fatal(err)
	}
	// Others may run here.
	config := strings.NewReplacer(":18000", ":0", ":18001", ":0", ":18002", ":0").Replace(s.read(conffile))
	s.write(conffile, config)
	s.starts()

	// An upgrade, and a step back, leave alone what is not the package's.
	const snapshot = state + "/kept"
	s.write(snapshot, "the last known good state")
	for _, file := range []string{now, old, now} {
		s.dpkg("--install", file)
		if s.read(conffile) != config || s.read(snapshot) != "the last known good state" {
			t.Errorf("%s has changed the configuration or the state", file)
		}
		s.owned(conffile, 0o640, 0, gid)
		s.owned(state, 0o700, uid, gid)
		s.starts()
	}

	s.dpkg("--remove", "xds-relay")
	s.gone("/usr/bin/xds-relay", unitFile)
	if s.read(conffile) != config || s.read(snapshot) == "" {
		t.Error("only a purge takes the configuration and the state away")
	}
	s.dpkg("--purge", "xds-relay")
	s.gone("/etc/xds-relay", state, "/usr/share/doc/xds-relay")
	if left, err := exec.Command("dpkg", "--status", "xds-relay").CombinedOutput(); err == nil {
		t.Errorf("dpkg still knows it:\n%s", left)
	}
}

const (
	conffile = "/etc/xds-relay/relay.yaml"
	unitFile = "/usr/lib/systemd/system/xds-relay.service"
	state    = "/var/lib/xds-relay"
)

// system is the copy, which the process is in.
type system struct{ t *testing.T }

func (s system) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s system) read(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		s.t.Error(err)
	}
	return string(text)
}

func (s system) gone(names ...string) {
	s.t.Helper()
	for _, name := range names {
		if _, err := os.Stat(name); !os.IsNotExist(err) {
			s.t.Errorf("%s is still there: %v", name, err)
		}
	}
}

func (s system) dpkg(args ...string) string {
	s.t.Helper()
	said, err := exec.Command("dpkg", append([]string{"--force-confdef"}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("dpkg %q: %v\n%s", args, err, said)
	}
	return string(said)
}

// user is the relay's.
func (s system) user() (uid, gid int) {
	s.t.Helper()
	for line := range strings.Lines(s.read("/etc/passwd")) {
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
	s.t.Fatalf("no user in\n%s", s.read("/etc/passwd"))
	return 0, 0
}

func (s system) owned(name string, mode os.FileMode, uid, gid int) {
	s.t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		s.t.Error(err)
		return
	}
	of := info.Sys().(*syscall.Stat_t)
	if info.Mode().Perm() != mode || int(of.Uid) != uid || int(of.Gid) != gid {
		s.t.Errorf("%s has mode %o and is of %d:%d, want %o and %d:%d", name, info.Mode().Perm(), of.Uid, of.Gid, mode, uid, gid)
	}
}

// starts runs the unit's commands as systemd would, as far as that goes without it: by the unit's user, without capabilities,
// on a file system of which only the state and /tmp can be written to, and with a socket for READY and WATCHDOG.
func (s system) starts() {
	s.t.Helper()
	commands := map[string][]string{}
	for line := range strings.Lines(s.read(unitFile)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && strings.HasPrefix(key, "Exec") {
			commands[key] = append(commands[key], value)
		}
	}
	if len(commands["ExecStart"]) != 1 || len(commands["ExecReload"]) != 2 {
		s.t.Fatalf("the unit's commands: %q", commands)
	}
	as := func(command string) *exec.Cmd {
		return exec.Command("unshare", "--mount", "sh", "-c", `mount --bind `+state+` `+state+` && mount -o remount,ro,bind / && exec setpriv --reuid xds-relay --regid xds-relay --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all `+command)
	}
	const socket = "/run/notify"
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: socket})
	if err != nil {
		s.t.Fatal(err)
	}
	defer os.Remove(socket)
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
