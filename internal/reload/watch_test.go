package reload

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestWatchSeesWhatCameBeforeIt: a file that changed between its first reading and Run is read again.
func TestWatchSeesWhatCameBeforeIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := NewWatch(path, slog.New(slog.DiscardHandler))
	w.Known = []byte("old")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	called := false
	w.Run(ctx, func() { called = true; cancel() })
	if !called {
		t.Error("the change before Run was missed")
	}
}
