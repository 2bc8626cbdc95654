package relay

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xds-relay/xds-relay/internal/config"
)

// A second relay on one snapshot directory says at its start who has it and what to do,
// once, and writes when the first has gone.
func TestSnapshot_SecondRelay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	start := func(instance string) (*Relay, *bytes.Buffer) {
		c, err := config.Load("", []string{"instance=" + instance, "cache.snapshot.dir=" + dir, "downstream.ready_types=[CDS]"})
		if err != nil {
			t.Fatal(err)
		}
		log := new(bytes.Buffer)
		r, err := New(c, Options{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError}))})
		if err != nil {
			t.Fatal(err)
		}
		return r, log
	}
	first, _ := start("a")
	second, log := start("b")
	second.keeper.written = nil // there is something to write
	second.keeper.save(false)
	second.keeper.save(false)
	want := fmt.Sprintf("process %d, instance", os.Getpid())
	if text := log.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, want) || !strings.Contains(text, "give each relay a cache.snapshot.dir of its own") {
		t.Errorf("it says %q, want one line with %q and what to do", text, want)
	}
	if second.keeper.hold != nil {
		t.Error("two relays hold one directory")
	}
	first.Close(0)
	second.keeper.written = nil
	second.keeper.save(false)
	if second.keeper.hold == nil {
		t.Error("it does not write although the first has gone")
	}
	second.Close(0)
}

// A directory that was removed, or replaced, while the relay runs is not written into, and one line says so. Once there
// is one again it is used, unless another relay has it.
func TestSnapshot_DirectoryLost(t *testing.T) {
	for _, tt := range []struct {
		what string
		lose func(t *testing.T, dir string)
		back func(t *testing.T, dir string)
	}{
		{
			"removed",
			func(t *testing.T, dir string) { rename(t, dir, dir+".gone") },
			func(t *testing.T, dir string) { rename(t, dir+".gone", dir) },
		},
		{
			"replaced",
			func(t *testing.T, dir string) { rename(t, dir, dir+".gone"); mkdir(t, dir) },
			func(*testing.T, string) {},
		},
		{
			"lock removed",
			func(t *testing.T, dir string) {
				rename(t, filepath.Join(dir, "snapshot.lock"), filepath.Join(dir, "x"))
			},
			func(*testing.T, string) {},
		},
	} {
		t.Run(tt.what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			c, err := config.Load("", []string{"cache.snapshot.dir=" + dir, "downstream.ready_types=[CDS]"})
			if err != nil {
				t.Fatal(err)
			}
			log := new(bytes.Buffer)
			r, err := New(c, Options{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError}))})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close(0)
			save := func() (is bool) {
				t.Helper()
				r.keeper.written = nil // there is something to write
				r.keeper.save(false)
				_, err := os.Stat(filepath.Join(dir, "snapshot"))
				return err == nil
			}
			if !save() {
				t.Fatal("no snapshot was written")
			}
			remove(t, filepath.Join(dir, "snapshot"))
			tt.lose(t, dir)
			if save() {
				t.Error("it writes into a directory that it does not hold")
			}
			if _, err := os.Stat(dir); tt.what == "removed" && (save() || err == nil) {
				t.Error("it makes the directory again")
			}
			tt.back(t, dir)
			if !save() {
				t.Error("it does not write when there is a directory again")
			}
			if text := log.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, "was removed or replaced while the relay runs") {
				t.Errorf("it says %q", text)
			}
		})
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
}
