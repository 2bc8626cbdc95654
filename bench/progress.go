//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// bar is one line that says how far a run is. On anything but a terminal it says
// nothing.
type bar struct {
	out   io.Writer
	tty   bool
	begin time.Time

	mu    sync.Mutex
	title string
	drawn time.Time
}

func newBar() *bar {
	return &bar{out: os.Stderr, tty: term.IsTerminal(int(os.Stderr.Fd())), begin: time.Now()}
}

// Title says what runs now.
func (b *bar) Title(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.title, b.begin = text, time.Now()
	if !b.tty {
		fmt.Fprintln(b.out, text)
	}
}

const barWidth = 24

// Step implements load.Progress.
func (b *bar) Step(phase string, done float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.tty || time.Since(b.drawn) < 100*time.Millisecond {
		return
	}
	b.drawn = time.Now()
	full := int(min(max(done, 0), 1) * barWidth)
	fmt.Fprintf(b.out, "\r\x1b[K%s  %-10s [%s%s] %v", b.title, phase,
		strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), time.Since(b.begin).Round(time.Second))
}

// Clear takes the line away.
func (b *bar) Clear() {
	if b.tty {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}
