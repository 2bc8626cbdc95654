package memory

import (
	"bytes"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPressure: memory is short above 90 % of the limit, and a warning says so once a minute.
func TestPressure(t *testing.T) {
	var log bytes.Buffer
	live := int64(0)
	w := &Watch{log: slog.New(slog.NewTextHandler(&log, nil)), read: func() (int64, int64) { return live, 1000 }}
	now := time.Now()
	for second, step := range []struct {
		live  int64
		short bool
		warns int
	}{
		{live: 900}, {live: 901, short: true, warns: 1}, {live: 2000, short: true, warns: 1}, {live: 10, warns: 1}, {live: 950, short: true, warns: 1},
	} {
		live = step.live
		w.look(now.Add(time.Duration(second) * time.Second).UnixNano())
		if n := strings.Count(log.String(), "level=WARN"); w.pressed.Load() != step.short || n != step.warns {
			t.Errorf("with %d: short %v, %d warnings", step.live, w.pressed.Load(), n)
		}
	}
	if w.look(now.Add(2 * time.Minute).UnixNano()); strings.Count(log.String(), "level=WARN") != 2 {
		t.Errorf("after a minute: %s", &log)
	}
}

// TestOneLooksInASecond: however many ask, memory is read once a second.
func TestOneLooksInASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		w := &Watch{log: slog.New(slog.DiscardHandler), read: func() (int64, int64) { reads++; return 2, 1 }}
		for range 3000 {
			if !w.Pressed() {
				t.Fatal("memory is not short")
			}
			time.Sleep(time.Millisecond)
		}
		if reads != 3 {
			t.Errorf("%d reads in 3 s", reads)
		}
	})
}

// TestLiveMemory: what a collection leaves counts, garbage does not, and without a limit nothing is ever short.
func TestLiveMemory(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(512 << 20))
	read := reader(t.TempDir())
	const size = 32 << 20
	runtime.GC()
	before, limit := read()
	if limit != 512<<20 {
		t.Errorf("the limit is %d", limit)
	}
	kept := make([]byte, size)
	runtime.GC()
	with, _ := read()
	if with-before < size/2 {
		t.Errorf("%d, and with %d more %d", before, size, with)
	}
	runtime.KeepAlive(kept)
	runtime.GC()
	if after, _ := read(); with-after < size/2 {
		t.Errorf("garbage counts: %d after %d", after, with)
	}
	debug.SetMemoryLimit(math.MaxInt64)
	if _, limit := read(); limit != math.MaxInt64 {
		t.Errorf("without a limit it is %d", limit)
	}
}

// TestCgroupLimits: the lowest limit on the way counts, in both versions, also where only the container's root is to be seen.
func TestCgroupLimits(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"none", nil, math.MaxInt64},
		{"version 2", map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "2000\n",
		}, 2000},
		{"version 2 in a container", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "3000\n"}, 3000},
		{"version 1", map[string]string{
			"proc/self/cgroup": "4:cpu:/x\n5:memory:/host/path\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "4000\n",
		}, 4000},
		{"no limit", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, math.MaxInt64},
	} {
		root := t.TempDir()
		for name, text := range tt.files {
			file := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := cgroupLimit(root); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
