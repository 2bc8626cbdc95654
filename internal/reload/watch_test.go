package reload

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
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

// TestGone: a file that is deleted or emptied, and not replaced, is reported once.
func TestGone(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"deleted": os.Remove,
		"emptied": func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "rules.yaml")
			if err := os.WriteFile(path, []byte("a"), 0o600); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				told := 0
				w := &Watch{Path: path, Settle: time.Second, Every: time.Second, Log: slog.New(slog.DiscardHandler), Blind: true, Gone: func() { told++ }}
				ctx, cancel := context.WithCancel(t.Context())
				var work sync.WaitGroup
				work.Go(func() { w.Run(ctx, func() {}) })
				synctest.Wait()
				if err := damage(path); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				cancel()
				work.Wait()
				if told != 1 {
					t.Errorf("told %d times", told)
				}
			})
		})
	}
}
