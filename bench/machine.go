//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xds-relay/xds-relay/bench/internal/result"
)

// newFile is an empty results file with all that is to be known about its making, and about
// programs that were not built for it.
func newFile(ctx context.Context, command string, servers []contender) *result.File {
	f := &result.File{
		Machine: machine(), Date: time.Now().UTC().Format(time.RFC3339), Command: command,
		Versions: map[string]string{"go": runtime.Version()},
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "google.golang.org/grpc" || strings.HasPrefix(m.Path, "github.com/envoyproxy/go-control-plane") {
				f.Versions[m.Path] = m.Version
			}
		}
	}
	for _, c := range servers {
		if c.version != "" {
			f.Versions[c.label] = c.version
		}
	}
	if out, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output(); err == nil {
		f.Versions["xds-relay"] = strings.TrimSpace(string(out))
	}
	// The peers have a module of their own, and so versions of their own.
	list := exec.CommandContext(ctx, "go", "list", "-C", "bench/peers", "-m", "-f", "{{.Path}} {{.Version}}", "github.com/envoyproxy/go-control-plane")
	list.Env = append(os.Environ(), "GOWORK=off")
	if out, err := list.Output(); err == nil {
		if path, version, ok := strings.Cut(strings.TrimSpace(string(out)), " "); ok {
			f.Versions[path] = version
		}
	}
	return f
}

// machine describes what all of this runs on.
func machine() string {
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				model = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
				break
			}
		}
	}
	var info unix.Sysinfo_t
	_ = unix.Sysinfo(&info) // zero is as good as unknown
	return fmt.Sprintf("%d x %s, %d MiB, %s/%s; server, clients and changes on one machine",
		runtime.NumCPU(), model, uint64(info.Totalram)*uint64(info.Unit)>>20, runtime.GOOS, runtime.GOARCH)
}

// loadAverage is the machine's, of 1 and 15 minutes: a machine that is busy with other
// things is slow at this one.
func loadAverage() string {
	var info unix.Sysinfo_t
	_ = unix.Sysinfo(&info) // zero is as good as unknown
	return fmt.Sprintf("%.1f, %.1f", float64(info.Loads[0])/(1<<16), float64(info.Loads[2])/(1<<16))
}

// allowFiles raises the limit of open files as far as it goes, for us and for what we
// start: each client is one, and its server has the other end.
func allowFiles(clients int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if needed := uint64(clients + 200); limit.Max < needed {
		return fmt.Errorf("%d connections need %d open files, and no more than %d are allowed: raise ulimit -Hn, or give --streams-per-connection", clients, needed, limit.Max)
	}
	limit.Cur = limit.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}
