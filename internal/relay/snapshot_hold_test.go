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
